// Package codec turns bytes into views and back: Avro, JSON, JSON Schema, Protobuf and raw bytes, the framings around them,
// and the schema registry with its cache.
//
// Avro bytes from outside are never given to a library decoder. The writer schema is parsed once (by its id, never by its
// name, INV-SCHEMA-BY-ID) and compiled into a program that validates a whole record and notes where each field of the root
// stands; a view then finds, prints and edits fields without materialising the record. Every count is checked against the
// bytes that are left before anything is looped over (INV-BOUNDED-DECODE), and a record is accepted only when its last byte
// is its end (INV-WHOLE-RECORD).
//
// A view never copies the source and never changes it (INV-SOURCE-UNMUTATED): Edit writes a new value in which everything
// that was not replaced is the same byte for byte.
package codec
