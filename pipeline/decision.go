package pipeline

// Action is what is done with a failed record.
type Action uint8

// The actions. Deliver is the decision of a record that did not fail.
const (
	ActDeliver Action = iota
	ActRetry
	ActQuarantine
	ActPark
	ActRange
	ActPause
)

var actionNames = [...]string{"deliver", "retry", "quarantine", "park", "range", "pause"}

// String is the action as files and try spell it.
func (a Action) String() string { return actionNames[a] }

// ParseAction reads what String writes.
func ParseAction(s string) (Action, bool) {
	for i, n := range actionNames {
		if n == s {
			return Action(i), true
		}
	}
	return 0, false
}

// Decision is the tuple of one failed record: what, where to, which attempt, not before when, why, by which policy.
type Decision struct {
	Action    Action
	Topic     string
	Attempt   uint8 // failed retries: 0 for immediate quarantine, 5 when exhausted
	NotBefore int64 // Unix ms; retry only
	Code      Code
	Policy    Digest
	Rule      string // that could not be evaluated; only with ERR_POLICY_RULE
}

// Facts is all that a policy may look at. It is a value: no clock, no I/O.
type Facts struct {
	Code       Code
	Class      Class
	Stage      string
	Lane       Lane
	Attempt    uint8 // failed retries so far
	Rung       uint8 // 0 after the stages; +1 for each refused send of this pass
	NowMS      int64
	FirstMS    int64 // when this record first stood in the source; 0 is unknown
	RetryAfter int64 // ms
	Schema     string
	Tenant     string
	Topic      string
	Release    string
	Redriven   bool
	Unhealthy  bool // the dependency that failed is known to be down
}

// Policy decides. It is pure, compiled from one file, and versioned by its digest. Safe for concurrent use.
type Policy interface {
	// Reject turns a business rule over the view into a failure of record i.
	Reject(b *Batch, i int) (Failure, bool)
	// Decide is called once for every failed record after all stages, and again, a rung lower, after a refused send.
	Decide(Facts) Decision
	// Digest names the version.
	Digest() Digest
}

// Disposition is what we did with a record: exactly one each.
type Disposition uint8

// The dispositions. Pending is none yet.
const (
	Pending Disposition = iota
	Delivered
	Retried
	DeadLettered
	Sealed
	InFallback
	Parked
	Ranged
)

var dispositionNames = [...]string{"pending", "delivered", "retried", "dead_lettered", "sealed", "fallback", "parked", "ranged"}

// String is the disposition as settlements spell it.
func (d Disposition) String() string { return dispositionNames[d] }

// Result is what became of a redriven record.
type Result string

// The results (CONTRACTS 5). The engine writes only Forwarded; registered writers may write the rest.
const (
	Forwarded      Result = "forwarded"
	Applied        Result = "applied"
	AlreadyApplied Result = "already_applied"
	Absent         Result = "absent"
	Superseded     Result = "superseded"
	Corrected      Result = "corrected"
	FailedOutcome  Result = "failed"
	UnknownOutcome Result = "unknown"
)

// Outcome is evidence about one redriven item.
type Outcome struct {
	Pipeline  string
	Item      ID
	Redrive   Digest
	Try       uint16
	At        Position // where the record stood when this was seen
	AtMS      int64
	Result    Result
	EffectRef string
	Writer    string
	Code      Code
}
