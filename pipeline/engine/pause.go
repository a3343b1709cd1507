package engine

// pauseBit is one reason why a partition is not read. It is read only while no bit is set. Bits belong to an assignment: they
// are set anew at the next one.
type pauseBit uint16

const (
	pauseBackpressure pauseBit = 1 << iota // too many of its batches are in work
	pauseFull                              // too many batches of all partitions are in work
	pauseDelay                             // too many bytes wait to be due
	pauseOutage                            // records are held back
	pauseIngress                           // the dead-letter path is down
	pauseControl                           // new, and the control topic is not read to its end
	pauseSuspect                           // suspect records are worked one group at a time
	pauseLane                              // a sink is full for what it sends
)

func (e *Engine) pause(p *part, bit pauseBit) {
	if p.paused == 0 && !p.gone {
		if err := e.o.Source.Pause(p.tp); err != nil {
			e.stop(err)
			return
		}
	}
	p.paused |= bit
}

func (e *Engine) resume(p *part, bit pauseBit) {
	if p.paused&bit == 0 {
		return
	}
	p.paused &^= bit
	if p.paused == 0 && !p.gone {
		if err := e.o.Source.Resume(p.tp); err != nil {
			e.stop(err)
		}
	}
}
