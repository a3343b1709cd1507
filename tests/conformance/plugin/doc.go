// Package plugin holds the suite of hostile plugins: what a plugin may try against the host, its machine and its other records,
// and that each attempt is blocked or contained. The program is in the folder hostile.
package plugin
