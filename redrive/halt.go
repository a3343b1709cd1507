package redrive

import (
	"context"
	"encoding/json"

	"reprieve.dev/custody"
	"reprieve.dev/ledger"
	"reprieve.dev/pipeline"
)

// Board is the control topic as redrive needs it.
type Board interface {
	// Halted tells whether a halt stands for the pipeline, and why. A board that has not heard from its topic for 10 s says so
	// as a halt: what is unknown counts as one (INV-HALT).
	Halted(pipeline string) (why string, halted bool)
	// Halt publishes a halt; an empty pipeline is all of them.
	Halt(ctx context.Context, pipeline, by, why string) error
}

// HaltInfo is a halt as the ledger keeps it.
type HaltInfo struct {
	Pipeline string `json:"pipeline"` // "" is all
	By       string `json:"by"`
	Reason   string `json:"reason"`
	At       string `json:"at"`
}

// A halt stands in the table of pace, as a row whose rate is 0: executors read it in the transaction in which they take their
// slots, so a window that begins after the halt was committed sees it.
func haltName(pipeline string) string { return "halt/" + pipeline }

// haltIn finds the halt that stands for a pipeline.
func haltIn(tx *ledger.Tx, name string) (*HaltInfo, error) {
	var found *HaltInfo
	err := tx.Each("SELECT detail FROM pace WHERE name IN (?, ?) AND rate = 0 AND detail <> '' ORDER BY name", []any{haltName(""), haltName(name)}, func(scan func(...any) error) error {
		var text string
		if err := scan(&text); err != nil {
			return err
		}
		h := &HaltInfo{}
		if json.Unmarshal([]byte(text), h) != nil {
			h = &HaltInfo{Pipeline: name, Reason: "the halt cannot be read"} // it stands all the same
		}
		found = h
		return nil
	})
	return found, err
}

// halted refuses when a halt stands, here or on the board.
func (s *Service) halted(tx *ledger.Tx, name string) error {
	h, err := haltIn(tx, name)
	if err != nil {
		return err
	}
	if h != nil {
		return pipeline.Errorf(pipeline.CodeRedriveHalted, name, "%s halted redrives: %s", h.By, h.Reason)
	}
	return s.boardHalted(name)
}

func (s *Service) boardHalted(name string) error {
	if s.board == nil {
		return nil
	}
	if why, ok := s.board.Halted(name); ok {
		return pipeline.Errorf(pipeline.CodeRedriveHalted, name, "%s", why)
	}
	return nil
}

// Halt stops every redrive of a pipeline, or of all with "". It is sticky. Anybody with the permission may halt. Codes:
// ERR_PERMISSION_DENIED, ERR_REASON_MISSING. The halt stands once the ledger has it, even if the board cannot be reached; then the
// error says so.
func (s *Service) Halt(ctx context.Context, who custody.Actor, name, reason string) error {
	if err := s.items.Check(ctx, who, custody.PermHalt, ""); err != nil {
		return err
	}
	if reason == "" {
		return pipeline.Errorf(pipeline.CodeReasonMissing, name, "a halt needs a reason")
	}
	return s.halt(ctx, who, name, reason)
}

func (s *Service) halt(ctx context.Context, who custody.Actor, name, reason string) error {
	err := s.db.Write(ctx, func(tx *ledger.Tx) error {
		h := HaltInfo{Pipeline: name, By: who.Subject, Reason: reason, At: stamp(s.clock())}
		n, err := tx.Exec(`INSERT INTO pace (name, rate, next_us, taken, until_ms, detail, rev) VALUES (?, 0, 0, 0, 0, ?, 1)
			ON CONFLICT (name) DO UPDATE SET rate = 0, detail = excluded.detail, rev = pace.rev + 1 WHERE pace.detail = ''`, haltName(name), toJSON(h))
		if err != nil {
			return err
		}
		if n == 0 {
			return nil // it stands already, with its first reason
		}
		tx.Append(ledger.Entry{Event: "redrive_halted", Actor: who.Subject, Detail: map[string]string{"pipeline": name, "reason": reason, "via": who.Via}})
		return nil
	})
	if err == nil && s.board != nil {
		err = s.board.Halt(ctx, name, who.Subject, reason)
	}
	s.log.Warn("redrives halted", "pipeline", name, "by", who.Subject)
	return err
}

// Lift ends the ledger's halt, which may stand for any tenant's sake. It takes another person than the one who set it, of all tenants,
// and a reason; a halt on the board is lifted there, by signatures (control.Snapshot.NewLift), and stands beside this one until then.
// Codes: ERR_PERMISSION_DENIED, ERR_TENANT_FORBIDDEN, ERR_REASON_MISSING, ERR_APPROVAL_SELF, ERR_REDRIVE_STATE (no halt stands).
func (s *Service) Lift(ctx context.Context, who custody.Actor, name, reason string) error {
	err := s.items.CheckWhole(ctx, who, custody.PermLift)
	if err != nil {
		return err
	}
	if reason == "" {
		return pipeline.Errorf(pipeline.CodeReasonMissing, name, "lifting a halt needs a reason")
	}
	err = s.db.Write(ctx, func(tx *ledger.Tx) error {
		var text string
		found, err := tx.Row("SELECT detail FROM pace WHERE name = ? AND rate = 0 AND detail <> ''"+tx.ForUpdate(), []any{haltName(name)}, &text)
		if err != nil {
			return err
		}
		if !found {
			return pipeline.Errorf(pipeline.CodeRedriveState, name, "no halt stands")
		}
		var h HaltInfo
		if err := json.Unmarshal([]byte(text), &h); err == nil && h.By == who.Subject {
			return pipeline.Errorf(pipeline.CodeApprovalSelf, name, "%s set the halt and cannot lift it", h.By)
		}
		if _, err := tx.Exec("UPDATE pace SET detail = '', rev = rev + 1 WHERE name = ?", haltName(name)); err != nil {
			return err
		}
		tx.Append(ledger.Entry{Event: "redrive_lifted", Actor: who.Subject, Detail: map[string]string{"pipeline": name, "reason": reason, "halted_by": h.By, "via": who.Via}})
		return nil
	})
	return s.refused(ctx, who, "lift", name, "", err)
}
