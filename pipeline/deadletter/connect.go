package deadletter

import "reprieve.dev/pipeline"

// Headers of Kafka Connect (KIP-298). Numbers are decimal text.
const (
	connectPrefix    = "__connect.errors."
	connectTopic     = "__connect.errors.topic"
	connectPartition = "__connect.errors.partition"
	connectOffset    = "__connect.errors.offset"
	connectName      = "__connect.errors.connector.name"
	connectTask      = "__connect.errors.task.id"
	connectStage     = "__connect.errors.stage"
	connectClass     = "__connect.errors.class.name"
	connectException = "__connect.errors.exception.class.name"
	connectMessage   = "__connect.errors.exception.message"
	connectStack     = "__connect.errors.exception.stacktrace"
)

// connect writes the connect profile, so that tools which read Connect's dead letters read ours.
func (w *writer) connect(l *Letter, x *explanation) {
	w.always(connectTopic, l.Original.Topic)
	w.number(connectPartition, int64(l.Original.Partition))
	w.number(connectOffset, l.Original.Offset)
	w.always(connectName, l.Pipeline)
	w.always(connectTask, "0")
	w.always(connectStage, stageOfConnect(l.Failure.Stage))
	w.always(connectClass, "reprieve.stage."+l.Failure.Stage)
	w.always(connectException, x.exception)
	if x.reason != dropped {
		w.always(connectMessage, x.reason)
	}
	if x.stack != dropped {
		w.always(connectStack, x.stack)
	}
}

// connectSize is what connect takes without reason and stack.
func connectSize(l *Letter, x *explanation) int {
	const names = len(connectTopic) + len(connectPartition) + len(connectOffset) + len(connectName) + len(connectTask) +
		len(connectStage) + len(connectClass) + len(connectException) + len(connectMessage) + len(connectStack)
	const numbers = 11 + 20 + 1
	return 10*headerOverhead + names + numbers + len(l.Original.Topic) + len(l.Pipeline) + len("VALUE_CONVERTER") +
		len("reprieve.stage.") + len(l.Failure.Stage) + len(x.exception)
}

// stageOfConnect is the closest word that Connect has for a stage of ours.
func stageOfConnect(stage string) string {
	switch stage {
	case "decode":
		return "VALUE_CONVERTER"
	case "route":
		return "TASK_PUT"
	}
	return "TRANSFORMATION"
}

// readConnect reads the last set: a record that failed twice has two, one after the other.
func readConnect(l *Letter, hs []pipeline.Header) {
	set := lastSet(hs, connectPrefix)
	l.Original = pipeline.Position{TP: pipeline.TP{Topic: set.text(connectTopic), Partition: set.decimal32(connectPartition)}, Offset: set.decimal(connectOffset)}
	l.Pipeline = set.text(connectName)
	l.Failure.Stage = set.text(connectStage)
	l.Exception = set.text(connectException)
	l.Reason = set.text(connectMessage)
	l.Stack = set.text(connectStack)
}
