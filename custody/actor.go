package custody

import (
	"slices"
	"strings"

	"reprieve.dev/ledger"
	"reprieve.dev/pipeline"
)

// Permission is one thing that an actor may do.
type Permission string

// The permissions. PermUnassigned is also needed for items whose tenant could not be read.
const (
	PermQuarantine  Permission = "quarantine"
	PermRead        Permission = "read"
	PermReveal      Permission = "reveal"
	PermTriage      Permission = "triage"
	PermRepair      Permission = "repair"
	PermResolve     Permission = "resolve"
	PermUpload      Permission = "upload_transform"
	PermPlan        Permission = "plan"
	PermApprove     Permission = "approve"
	PermExecute     Permission = "execute"
	PermDestination Permission = "change_destination"
	PermDiscard     Permission = "discard"
	PermRestore     Permission = "restore"
	PermRetention   Permission = "retention"
	PermHold        Permission = "hold"
	PermLegalHold   Permission = "legal_hold"
	PermPolicy      Permission = "policy"
	PermRule        Permission = "rule"
	PermHalt        Permission = "halt"
	PermLift        Permission = "lift"
	PermErase       Permission = "erase"
	PermAudit       Permission = "read_audit"
	PermUnassigned  Permission = "unassigned"
)

// Permissions are all of them.
func Permissions() []Permission {
	return []Permission{PermQuarantine, PermRead, PermReveal, PermTriage, PermRepair, PermResolve, PermUpload, PermPlan, PermApprove,
		PermExecute, PermDestination, PermDiscard, PermRestore, PermRetention, PermHold, PermLegalHold, PermPolicy, PermRule, PermHalt, PermLift,
		PermErase, PermAudit, PermUnassigned}
}

// Roles maps a role to what it permits.
type Roles map[string][]Permission

// DefaultRoles are the roles of a worker file that names none. "system" is the worker itself; "admin" may do everything
// except take the place of a second person: that is checked by subject.
func DefaultRoles() Roles {
	operator := []Permission{PermRead, PermTriage, PermRepair, PermResolve, PermPlan, PermExecute, PermHold, PermRestore, PermHalt, PermUnassigned}
	return Roles{
		"viewer":   {PermRead},
		"intake":   {PermQuarantine}, // an application that hands over what it could not process
		"operator": operator,
		"owner":    append(slices.Clone(operator), PermReveal, PermDiscard, PermApprove, PermRule),
		"approver": {PermRead, PermApprove, PermLift},
		"auditor":  {PermRead, PermAudit, PermUnassigned},
		"privacy":  {PermRead, PermRetention, PermLegalHold, PermErase, PermAudit, PermUnassigned},
		"platform": {PermRead, PermPolicy, PermUpload, PermDestination, PermHalt, PermLift, PermRetention, PermUnassigned},
		"system":   {PermQuarantine, PermRead, PermResolve, PermRepair, PermExecute, PermRetention, PermHalt, PermUnassigned},
		"admin":    Permissions(),
	}
}

// AllTenants in Actor.Tenants stands for every tenant.
const AllTenants = "*"

// Actor is who does something. The subject comes from a credential, never from a flag of the request.
type Actor struct {
	Subject string
	Roles   []string
	Tenants []string // AllTenants for all; none sees nothing
	Via     string   // cli, api, console, worker

	taken []Permission // by break-glass (Granted)
}

// System is the worker's own actor.
func System(name string) Actor {
	return Actor{Subject: ledger.SystemActor + name, Roles: []string{"system"}, Tenants: []string{AllTenants}, Via: "worker"}
}

func (r Roles) has(a Actor, p Permission) bool {
	for _, role := range a.Roles {
		if slices.Contains(r[role], p) {
			return true
		}
	}
	return slices.Contains(a.taken, p)
}

// sees tells whether the actor may know of items of a tenant.
func (r Roles) sees(a Actor, tenant string) bool {
	if tenant == pipeline.TenantUnassigned && !r.has(a, PermUnassigned) {
		return false
	}
	return slices.Contains(a.Tenants, AllTenants) || slices.Contains(a.Tenants, tenant)
}

// Check refuses an actor without a permission, apart from any tenant. Codes: ERR_PERMISSION_DENIED.
func (r Roles) Check(a Actor, p Permission) error { return r.check(a, p, "") }

// check refuses what the actor may not do. Codes: ERR_PERMISSION_DENIED, ERR_TENANT_FORBIDDEN.
func (r Roles) check(a Actor, p Permission, tenant string) error {
	if a.Subject == "" {
		return pipeline.Errorf(pipeline.CodePermissionDenied, "", "an actor without a subject may do nothing")
	}
	if strings.HasPrefix(a.Subject, ledger.SystemActor) && a.Via != "worker" {
		return pipeline.Errorf(pipeline.CodePermissionDenied, a.Subject, "no person is called that")
	}
	if !r.has(a, p) {
		return pipeline.Errorf(pipeline.CodePermissionDenied, a.Subject, "the permission %q is missing (roles: %s)", p, strings.Join(a.Roles, ", "))
	}
	if tenant != "" && !r.sees(a, tenant) {
		return pipeline.Errorf(pipeline.CodeTenantForbidden, a.Subject, "items of this tenant are not theirs to see")
	}
	return nil
}

// whole refuses who may not do it for all tenants.
func (r Roles) whole(a Actor, p Permission) error {
	if err := r.check(a, p, ""); err != nil {
		return err
	}
	if !slices.Contains(a.Tenants, AllTenants) {
		return pipeline.Errorf(pipeline.CodeTenantForbidden, a.Subject, "this is about the whole ledger, and they are of some tenants only").
			With("Ask somebody of all tenants.")
	}
	return nil
}

// visible is the condition that limits a query to the actor's tenants. Every query over items has it.
func (r Roles) visible(t *ledger.Tx, a Actor, column string) (string, []any) {
	unassigned := r.has(a, PermUnassigned)
	if slices.Contains(a.Tenants, AllTenants) {
		if unassigned {
			return column + " <> ''", nil
		}
		return column + " <> ?", []any{pipeline.TenantUnassigned}
	}
	var mine []string
	for _, x := range a.Tenants {
		if x != pipeline.TenantUnassigned || unassigned {
			mine = append(mine, x)
		}
	}
	cond, arg := t.In(column, mine)
	return cond, []any{arg}
}
