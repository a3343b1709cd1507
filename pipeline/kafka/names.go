package kafka

import "strings"

// Which kinds of client a property is for. A cluster's properties serve all of them; what does not apply to one is left out
// of its configuration instead of being warned about by the library at each start.
const (
	forConsumer = 1 << iota
	forProducer
	forAll = forConsumer | forProducer
)

// The names that librdkafka 2.11.1 takes as text settings. Callbacks, internal ones and those of other platforms are not
// among them. A test compares this list with the library that is linked.
const (
	namesAll = `
		api.version.fallback.ms api.version.request api.version.request.timeout.ms bootstrap.servers
		broker.address.family broker.address.ttl broker.version.fallback builtin.features client.dns.lookup client.id
		client.rack client.software.name client.software.version connections.max.idle.ms debug enable.metrics.push
		enable.random.seed enable.sasl.oauthbearer.unsecure.jwt enable.sparse.connections
		enable.ssl.certificate.verification https.ca.location https.ca.pem internal.termination.signal
		log.connection.close log.thread.name log_level max.in.flight max.in.flight.requests.per.connection
		message.copy.max.bytes message.max.bytes metadata.broker.list metadata.max.age.ms
		metadata.recovery.rebootstrap.trigger.ms metadata.recovery.strategy metadata.request.timeout.ms
		plugin.library.paths receive.message.max.bytes reconnect.backoff.jitter.ms reconnect.backoff.max.ms
		reconnect.backoff.ms retry.backoff.max.ms retry.backoff.ms sasl.kerberos.keytab sasl.kerberos.kinit.cmd
		sasl.kerberos.min.time.before.relogin sasl.kerberos.principal sasl.kerberos.service.name sasl.mechanism
		sasl.mechanisms sasl.oauthbearer.assertion.algorithm sasl.oauthbearer.assertion.claim.aud
		sasl.oauthbearer.assertion.claim.exp.seconds sasl.oauthbearer.assertion.claim.iss
		sasl.oauthbearer.assertion.claim.jti.include sasl.oauthbearer.assertion.claim.nbf.seconds
		sasl.oauthbearer.assertion.claim.sub sasl.oauthbearer.assertion.file
		sasl.oauthbearer.assertion.jwt.template.file sasl.oauthbearer.assertion.private.key.file
		sasl.oauthbearer.assertion.private.key.passphrase sasl.oauthbearer.assertion.private.key.pem
		sasl.oauthbearer.client.credentials.client.id sasl.oauthbearer.client.credentials.client.secret
		sasl.oauthbearer.client.id sasl.oauthbearer.client.secret sasl.oauthbearer.config sasl.oauthbearer.extensions
		sasl.oauthbearer.grant.type sasl.oauthbearer.method sasl.oauthbearer.scope
		sasl.oauthbearer.token.endpoint.url sasl.password sasl.username security.protocol socket.blocking.max.ms
		socket.connection.setup.timeout.ms socket.keepalive.enable socket.max.fails socket.nagle.disable
		socket.receive.buffer.bytes socket.send.buffer.bytes socket.timeout.ms ssl.ca.location ssl.ca.pem
		ssl.certificate.location ssl.certificate.pem ssl.cipher.suites ssl.crl.location ssl.curves.list
		ssl.endpoint.identification.algorithm ssl.engine.id ssl.engine.location ssl.key.location ssl.key.password
		ssl.key.pem ssl.keystore.location ssl.keystore.password ssl.providers ssl.sigalgs.list
		statistics.interval.ms topic.blacklist topic.metadata.propagation.max.ms topic.metadata.refresh.fast.cnt
		topic.metadata.refresh.fast.interval.ms topic.metadata.refresh.interval.ms topic.metadata.refresh.sparse`
	namesConsumer = `
		allow.auto.create.topics auto.commit.enable auto.commit.interval.ms auto.offset.reset check.crcs
		consume.callback.max.messages coordinator.query.interval.ms enable.auto.commit enable.auto.offset.store
		enable.partition.eof fetch.error.backoff.ms fetch.max.bytes fetch.message.max.bytes fetch.min.bytes
		fetch.queue.backoff.ms fetch.wait.max.ms group.id group.instance.id group.protocol group.protocol.type
		group.remote.assignor heartbeat.interval.ms isolation.level max.partition.fetch.bytes max.poll.interval.ms
		offset.store.method offset.store.path offset.store.sync.interval.ms partition.assignment.strategy
		queued.max.messages.kbytes queued.min.messages session.timeout.ms`
	namesProducer = `
		acks batch.num.messages batch.size compression.codec compression.level compression.type
		delivery.report.only.error delivery.timeout.ms enable.gapless.guarantee enable.idempotence linger.ms
		message.send.max.retries message.timeout.ms partitioner produce.offset.report
		queue.buffering.backpressure.threshold queue.buffering.max.kbytes queue.buffering.max.messages
		queue.buffering.max.ms queuing.strategy request.required.acks request.timeout.ms retries
		sticky.partitioning.linger.ms transaction.timeout.ms transactional.id`
)

// ours are the properties that Reprieve sets itself, with what to write instead. To let a file change them would lose,
// double or reorder records.
var ours = map[string]string{
	"group.id":                   "set source.group in the pipeline file",
	"group.instance.id":          "set name in the worker file",
	"transactional.id":           "set name in the worker file and delivery: exactly_once",
	"enable.auto.commit":         "remove it: offsets are committed when their records are settled",
	"auto.commit.enable":         "remove it: offsets are committed when their records are settled",
	"auto.commit.interval.ms":    "remove it: offsets are committed when their records are settled",
	"enable.auto.offset.store":   "remove it: offsets are committed when their records are settled",
	"offset.store.method":        "remove it: offsets are kept by the broker",
	"enable.partition.eof":       "remove it",
	"acks":                       "remove it: every write waits for all in-sync replicas",
	"request.required.acks":      "remove it: every write waits for all in-sync replicas",
	"enable.idempotence":         "remove it: it is always on",
	"delivery.report.only.error": "remove it: every write is accounted for",
	"produce.offset.report":      "remove it: it is always on",
	"queuing.strategy":           "remove it: order per partition is kept",
	"partitioner":                "remove it: keys go where Java producers send them (murmur2)",
}

// kindOf tells which clients a property is for; 0 is unknown.
func kindOf(name string) int {
	for _, g := range [...]struct {
		names string
		kind  int
	}{{namesAll, forAll}, {namesConsumer, forConsumer}, {namesProducer, forProducer}} {
		for n := range strings.FieldsSeq(g.names) {
			if n == name {
				return g.kind
			}
		}
	}
	return 0
}

// nearest is the known name with the fewest edits, or "" if none is near enough to be what was meant.
func nearest(name string) string {
	best, at := "", len(name)/3+2
	for _, names := range [...]string{namesAll, namesConsumer, namesProducer} {
		for n := range strings.FieldsSeq(names) {
			if d := edits(name, n, at); d < at {
				best, at = n, d
			}
		}
	}
	return best
}

// edits is the Levenshtein distance of a and b, or max if it is not below max.
func edits(a, b string, max int) int {
	if d := len(a) - len(b); d >= max || -d >= max {
		return max
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			d := diagonal
			if a[i] != b[j] {
				d++
			}
			diagonal = row[j+1]
			row[j+1] = min(d, row[j]+1, diagonal+1)
		}
	}
	return min(row[len(b)], max)
}
