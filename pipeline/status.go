package pipeline

// The states of a running pipeline.
const (
	StateStarting = "starting"
	StateRunning  = "running"
	StateWaiting  = "waiting" // to be started again after an error
	StateFailed   = "failed"  // somebody must mend something first
	StateHalted   = "halted"  // until a person resumes it
	StateStopped  = "stopped"
)

// Status is one pipeline of a worker, for readiness and people.
type Status struct {
	Name     string `json:"name"`
	State    string `json:"state"`
	Ready    bool   `json:"ready"` // takes records
	Code     Code   `json:"code,omitempty"`
	Place    string `json:"place,omitempty"`
	Text     string `json:"text,omitempty"`
	Remedy   string `json:"remedy,omitempty"`
	Assigned int    `json:"assigned_partitions"`
	Digest   string `json:"digest"` // of its file
	Policy   string `json:"policy"` // the version in force
	Canary   string `json:"policy_canary,omitempty"`
}
