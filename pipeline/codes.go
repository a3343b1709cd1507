package pipeline

import (
	"slices"
	"strings"
)

// Exit codes of the command line (DESIGN 10).
const (
	ExitOK          = 0
	ExitRuntime     = 1
	ExitInput       = 2
	ExitEnvironment = 3
	ExitRefused     = 4
)

// CodeInfo is all that follows from a code.
type CodeInfo struct {
	Code        Code
	Class       Class
	Action      Action   // what the default policy does
	Identifying []string // params that tell one cause from another: they go into the fingerprint
	Exit        int      // of a command that ends with it
	Text        string   // what happened, no payload
	Remedy      string   // what to do
}

// IsAlert tells whether somebody is told of a code at once: alerts, and the halt that follows when letters have nowhere to go.
func IsAlert(c Code) bool { return strings.HasPrefix(string(c), "ALERT_") || c == CodeFailureDomain }

// Retryable tells whether a retry may succeed without anybody mending something.
func (c CodeInfo) Retryable() bool { return c.Class == Transient && c.Action == ActRetry }

// Every code there is. A code is never renamed or reused.
const (

	// decode
	CodeDecodeTruncated     Code = "ERR_DECODE_TRUNCATED"
	CodeDecodeLeftover      Code = "ERR_DECODE_LEFTOVER"
	CodeDecodeInvalid       Code = "ERR_DECODE_INVALID"
	CodeDecodeFraming       Code = "ERR_DECODE_FRAMING"
	CodeDecodeEmpty         Code = "ERR_DECODE_EMPTY"
	CodeDecodeJSON          Code = "ERR_DECODE_JSON"
	CodeDecodeDuplicate     Code = "ERR_DECODE_DUPLICATE"
	CodeDecodeEnum          Code = "ERR_DECODE_ENUM"
	CodeDecodePrecision     Code = "ERR_DECODE_PRECISION"
	CodeSchemaUnknown       Code = "ERR_SCHEMA_UNKNOWN"
	CodeSchemaInvalid       Code = "ERR_SCHEMA_INVALID"
	CodeSchemaMismatch      Code = "ERR_SCHEMA_MISMATCH"
	CodeRegistryUnavailable Code = "ERR_REGISTRY_UNAVAILABLE"
	CodeRegistryDenied      Code = "ERR_REGISTRY_DENIED"

	// resource
	CodeLimitBytes     Code = "ERR_LIMIT_BYTES"
	CodeLimitDepth     Code = "ERR_LIMIT_DEPTH"
	CodeLimitItems     Code = "ERR_LIMIT_ITEMS"
	CodeLimitExpansion Code = "ERR_LIMIT_EXPANSION"
	CodeTooLarge       Code = "ERR_RECORD_TOO_LARGE"

	// classify and policy
	CodeRejected         Code = "ERR_DOMAIN_REJECTED"
	CodePolicyRule       Code = "ERR_POLICY_RULE"
	CodePolicyPath       Code = "ERR_POLICY_PATH"
	CodePolicyUnread     Code = "ERR_POLICY_UNREAD"
	CodePolicyUnknown    Code = "ERR_POLICY_UNKNOWN"
	CodeTenantDenied     Code = "ERR_TENANT_DENIED"
	CodeTenantUnreadable Code = "ERR_TENANT_UNREADABLE"
	CodeTenantRevoked    Code = "ERR_TENANT_REVOKED"
	CodeResidency        Code = "ERR_RESIDENCY_DENIED"

	// redact
	CodeRedactFailed   Code = "ERR_REDACT_FAILED"
	CodeRedactIdentity Code = "ERR_REDACT_IDENTITY"

	// enrich, route, effects
	CodeEnrichRule       Code = "ERR_ENRICH_RULE"
	CodeEnrichMissing    Code = "ERR_ENRICH_MISSING"
	CodeRouteRule        Code = "ERR_ROUTE_RULE"
	CodeRouteNone        Code = "ERR_ROUTE_NONE"
	CodeRouteEncode      Code = "ERR_ROUTE_ENCODE"
	CodeStageCondition   Code = "ERR_STAGE_CONDITION"
	CodeHTTPUnavailable  Code = "ERR_HTTP_UNAVAILABLE"
	CodeHTTPTimeout      Code = "ERR_HTTP_TIMEOUT"
	CodeHTTPAmbiguous    Code = "ERR_HTTP_AMBIGUOUS"
	CodeHTTPRejected     Code = "ERR_HTTP_REJECTED"
	CodeHTTPDenied       Code = "ERR_HTTP_DENIED"
	CodeHTTPAnswer       Code = "ERR_HTTP_ANSWER"
	CodeHTTPRequest      Code = "ERR_HTTP_REQUEST"
	CodeSendTimeout      Code = "ERR_SEND_TIMEOUT"
	CodeSendTopicMissing Code = "ERR_SEND_TOPIC_MISSING"
	CodeSendDenied       Code = "ERR_SEND_DENIED"
	CodeSendFailed       Code = "ERR_SEND_FAILED"
	CodeSendKeyless      Code = "ERR_SEND_KEYLESS"

	// retry and crash
	CodeRetryExhausted         Code = "ERR_RETRY_EXHAUSTED"
	CodeRetryAge               Code = "ERR_RETRY_AGE"
	CodeInfiniteRetry          Code = "ERR_INFINITE_RETRY_ABORTED"
	CodePanic                  Code = "ERR_CONSUMER_PANIC"
	CodeLineage                Code = "ERR_LINEAGE_UNVERIFIED"
	CodeForeignFailure         Code = "ERR_FOREIGN_FAILURE"
	CodePluginCrashed          Code = "ERR_PLUGIN_CRASHED"
	CodePluginTimeout          Code = "ERR_PLUGIN_TIMEOUT"
	CodePluginAnswer           Code = "ERR_PLUGIN_ANSWER"
	CodePluginNondeterministic Code = "ERR_PLUGIN_NONDETERMINISTIC"
	CodePluginRefused          Code = "ERR_PLUGIN_REFUSED"
	CodePluginUnavailable      Code = "ERR_PLUGIN_UNAVAILABLE"

	// letters
	CodeIngressFailed   Code = "ALERT_DLQ_INGRESS_FAILED"
	CodeFailureDomain   Code = "ERR_SHARED_FAILURE_DOMAIN_EXHAUSTED"
	CodeFallbackFailed  Code = "ERR_FALLBACK_FAILED"
	CodeDependencyDown  Code = "ALERT_DEPENDENCY_DOWN"
	CodePolicyFailed    Code = "ALERT_POLICY_FAILED"
	CodePolicyUnusable  Code = "ALERT_POLICY_UNUSABLE"
	CodeErrorBudget     Code = "ERR_ERROR_BUDGET_EXCEEDED"
	CodeControlForged   Code = "ALERT_CONTROL_FORGED"
	CodeControlNotReady Code = "ERR_CONTROL_NOT_READY"
	CodeLoop            Code = "ERR_REDRIVE_LOOP"

	// brokers, topics
	CodeBrokerUnreachable Code = "ERR_BROKER_UNREACHABLE"
	CodeBrokerFatal       Code = "ERR_BROKER_FATAL"
	CodeBrokerAuth        Code = "ERR_BROKER_AUTH"
	CodeBrokerConfig      Code = "ERR_BROKER_CONFIG"
	CodeTopicMissing      Code = "ERR_TOPIC_MISSING"
	CodeTopicUnsafe       Code = "ERR_TOPIC_UNSAFE"
	CodeCommitRefused     Code = "ERR_COMMIT_REFUSED"
	CodeTxFenced          Code = "ERR_TX_FENCED"
	CodeTxAborted         Code = "ERR_TX_ABORTED"
	CodeSinkFull          Code = "ERR_SINK_FULL"
	CodeDrainTimeout      Code = "ERR_DRAIN_TIMEOUT"

	// config
	CodeConfigSyntax       Code = "ERR_CONFIG_SYNTAX"
	CodeConfigUnknownKey   Code = "ERR_CONFIG_UNKNOWN_KEY"
	CodeConfigDuplicateKey Code = "ERR_CONFIG_DUPLICATE_KEY"
	CodeConfigType         Code = "ERR_CONFIG_TYPE"
	CodeConfigValue        Code = "ERR_CONFIG_VALUE"
	CodeConfigMissing      Code = "ERR_CONFIG_MISSING"
	CodeConfigVariable     Code = "ERR_CONFIG_VARIABLE"
	CodeConfigAlias        Code = "ERR_CONFIG_ALIAS"
	CodeConfigDocument     Code = "ERR_CONFIG_DOCUMENT"
	CodeConfigReference    Code = "ERR_CONFIG_REFERENCE"
	CodeConfigUnsafe       Code = "ERR_CONFIG_UNSAFE"
	CodeConfigOpen         Code = "ERR_CONFIG_OPEN_QUESTION"
	CodeConfigRead         Code = "ERR_CONFIG_READ"
	CodeConfigExpression   Code = "ERR_CONFIG_EXPRESSION"
	CodePathInvalid        Code = "ERR_PATH_INVALID"
	CodeUsage              Code = "ERR_USAGE"
	CodeInputInvalid       Code = "ERR_INPUT_INVALID"

	// custody and ledger
	CodeLedgerUnavailable  Code = "ERR_LEDGER_UNAVAILABLE"
	CodeLedgerBusy         Code = "ERR_LEDGER_BUSY"
	CodeLedgerVersion      Code = "ERR_LEDGER_VERSION"
	CodeLedgerCorrupt      Code = "ERR_LEDGER_CORRUPT"
	CodeLedgerFull         Code = "ERR_LEDGER_FULL"
	CodeLedgerReadOnly     Code = "ERR_LEDGER_READ_ONLY"
	CodeCustodyConflict    Code = "ERR_CUSTODY_CONFLICT"
	CodeCustodyUnavailable Code = "ERR_CUSTODY_UNAVAILABLE"
	CodeStateInvalid       Code = "ERR_STATE_TRANSITION_INVALID"
	CodeStateChanged       Code = "ERR_STATE_CHANGED"
	CodeItemUnknown        Code = "ERR_ITEM_UNKNOWN"
	CodeItemUnconfirmed    Code = "ERR_ITEM_UNCONFIRMED"
	CodeItemHeld           Code = "ERR_ITEM_HELD"
	CodePayloadMissing     Code = "ERR_PAYLOAD_MISSING"
	CodePayloadUnfaithful  Code = "ERR_PAYLOAD_UNFAITHFUL"
	CodePayloadUnavailable Code = "ERR_PAYLOAD_UNAVAILABLE"
	CodePermissionDenied   Code = "ERR_PERMISSION_DENIED"
	CodeArchiveFailed      Code = "ERR_ARCHIVE_FAILED"
	CodeRetentionEnding    Code = "ALERT_RETENTION_ENDING"
	CodeRetentionEscalated Code = "ALERT_RETENTION_ESCALATED"
	CodeRetentionOutlived  Code = "ALERT_RETENTION_OUTLIVED"
	CodeObjectiveMissed    Code = "ALERT_OBJECTIVE_MISSED"
	CodeGlassBroken        Code = "ALERT_BREAK_GLASS"
	CodeAlertUndelivered   Code = "ERR_ALERT_UNDELIVERED"
	CodeUnauthenticated    Code = "ERR_UNAUTHENTICATED"
	CodeIdempotencyReused  Code = "ERR_IDEMPOTENCY_KEY_REUSED"
	CodeTenantForbidden    Code = "ERR_TENANT_FORBIDDEN"
	CodeTicketMissing      Code = "ERR_TICKET_MISSING"
	CodeReasonMissing      Code = "ERR_REASON_MISSING"
	CodeEvidenceMissing    Code = "ERR_EVIDENCE_MISSING"
	CodeLegalHold          Code = "ERR_LEGAL_HOLD"
	CodeErased             Code = "ERR_ERASED"
	CodeKeyDestroyed       Code = "ERR_KEY_DESTROYED"
	CodeKeyUnknown         Code = "ERR_KEY_UNKNOWN"
	CodeKeyUnpublished     Code = "ERR_KEY_UNPUBLISHED"
	CodeSealFailed         Code = "ERR_SEAL_FAILED"
	CodeSealBroken         Code = "ERR_SEAL_BROKEN"
	CodeSelectionInvalid   Code = "ERR_SELECTION_INVALID"
	CodeSnapshotRequired   Code = "ERR_SNAPSHOT_REQUIRED"
	CodeSnapshotChanged    Code = "ERR_SNAPSHOT_CHANGED"
	CodeRuleInvalid        Code = "ERR_RULE_INVALID"
	CodeLetterInvalid      Code = "ERR_LETTER_INVALID"
	CodeSignatureInvalid   Code = "ERR_SIGNATURE_INVALID"

	// transforms
	CodeTransformUnknown   Code = "ERR_TRANSFORM_UNKNOWN"
	CodeTransformConfig    Code = "ERR_TRANSFORM_CONFIG"
	CodeTransformFailed    Code = "ERR_TRANSFORM_FAILED"
	CodeTransformIdentity  Code = "ERR_TRANSFORM_IDENTITY"
	CodeTransformKey       Code = "ERR_TRANSFORM_KEY"
	CodeTransformSchema    Code = "ERR_TRANSFORM_SCHEMA"
	CodeTransformInvariant Code = "ERR_TRANSFORM_INVARIANT"
	CodeTransformSize      Code = "ERR_TRANSFORM_SIZE"
	CodePluginLock         Code = "ERR_PLUGIN_LOCK"
	CodePluginUnknown      Code = "ERR_PLUGIN_UNKNOWN"
	CodePluginSandbox      Code = "ERR_PLUGIN_SANDBOX"
	CodePluginHandshake    Code = "ERR_PLUGIN_HANDSHAKE"

	// redrive
	CodeManifestInvalid  Code = "ERR_MANIFEST_INVALID"
	CodeManifestDigest   Code = "ERR_MANIFEST_DIGEST"
	CodeManifestUnknown  Code = "ERR_MANIFEST_UNKNOWN"
	CodeManifestEmpty    Code = "ERR_MANIFEST_EMPTY"
	CodeDryRunRequired   Code = "ERR_DRY_RUN_REQUIRED"
	CodeApprovalMissing  Code = "ERR_APPROVAL_MISSING"
	CodeApprovalSelf     Code = "ERR_APPROVAL_SELF"
	CodeApprovalExpired  Code = "ERR_APPROVAL_EXPIRED"
	CodeApprovalInvalid  Code = "ERR_APPROVAL_INVALID"
	CodeApprovalRevoked  Code = "ERR_APPROVAL_REVOKED"
	CodeRedriveRate      Code = "ERR_REDRIVE_RATE"
	CodeRedrivePrimary   Code = "ERR_REDRIVE_PRIMARY"
	CodeRedriveTenant    Code = "ERR_REDRIVE_TENANT"
	CodeRedriveHalted    Code = "ERR_REDRIVE_HALTED"
	CodeRedriveState     Code = "ERR_REDRIVE_STATE"
	CodeRedriveUncertain Code = "ERR_REDRIVE_UNCERTAIN"
	CodeRedriveMismatch  Code = "ERR_REDRIVE_MISMATCH"
	CodeRedriveThreshold Code = "ERR_REDRIVE_THRESHOLD"
	CodeRedriveHorizon   Code = "ERR_REDRIVE_HORIZON"
	CodeRedriveOpenOrder Code = "ERR_REDRIVE_ORDER"
	CodeRedriveTime      Code = "ERR_REDRIVE_TIMESTAMP"
	CodeRedriveIdentity  Code = "ERR_REDRIVE_IDENTITY"
	CodeReconcileFirst   Code = "ERR_RECONCILE_FIRST"
	CodeSuperseded       Code = "ERR_REDRIVE_SUPERSEDED"
	CodeCompensation     Code = "ERR_UNTESTED_COMPENSATION_BLOCKED"

	// general
	CodeInternal        Code = "ERR_INTERNAL"
	CodeEnvironmentTool Code = "ERR_ENVIRONMENT"
	CodeInterrupted     Code = "ERR_INTERRUPTED"
	CodeNotYet          Code = "ERR_NOT_AVAILABLE"
)

var codeTable = []CodeInfo{

	// decode
	{CodeDecodeTruncated, Payload, ActQuarantine, []string{"schema"}, ExitRuntime,
		"the bytes end before the record does",
		"Compare the writer's schema id with what it really wrote; repair with a transform or ask the producer to send it again."},
	{CodeDecodeLeftover, Payload, ActQuarantine, []string{"schema"}, ExitRuntime,
		"bytes are left over after the record",
		"The record was written with another schema or two records were glued together; find the producer's release."},
	{CodeDecodeInvalid, Payload, ActQuarantine, []string{"schema", "what"}, ExitRuntime,
		"the bytes are not what the schema says",
		"Compare the writer's schema id with what it really wrote."},
	{CodeDecodeFraming, Payload, ActQuarantine, []string{"what"}, ExitRuntime,
		"the value does not start with the framing that the pipeline expects",
		"Check decode.format and decode.framing against the producer's serializer."},
	{CodeDecodeEmpty, Payload, ActQuarantine, nil, ExitRuntime,
		"the value has zero bytes, which is neither a record nor a tombstone",
		"Ask the producer to send null for a delete marker."},
	{CodeDecodeJSON, Payload, ActQuarantine, []string{"what"}, ExitRuntime,
		"the value is not valid JSON",
		"Repair the document with a transform or mend the producer."},
	{CodeDecodeDuplicate, Payload, ActQuarantine, nil, ExitRuntime,
		"a JSON object has the same member twice",
		"Mend the producer: readers disagree which member counts."},
	{CodeDecodeEnum, Payload, ActQuarantine, []string{"schema", "field"}, ExitRuntime,
		"the enum symbol is unknown to the reader and it has no default",
		"Upgrade the reader schema or give its enum a default."},
	{CodeDecodePrecision, Payload, ActQuarantine, []string{"schema", "field"}, ExitRuntime,
		"a decimal has more digits than its precision",
		"Correct the producer's schema or its value."},
	{CodeSchemaUnknown, Payload, ActQuarantine, []string{"schema"}, ExitRuntime,
		"the registry does not know the schema id",
		"Register the schema under this id, or find out which registry the producer uses."},
	{CodeSchemaInvalid, Payload, ActQuarantine, []string{"schema"}, ExitRuntime,
		"the registry's schema cannot be used",
		"Correct the schema in the registry."},
	{CodeSchemaMismatch, Payload, ActQuarantine, []string{"schema", "field"}, ExitRuntime,
		"the record does not satisfy its schema",
		"Compare the producer's schema with the reader's; a compatible schema change mends it."},
	{CodeRegistryUnavailable, Transient, ActRetry, nil, ExitRuntime,
		"the schema registry does not answer",
		"Look at the registry; records with known schemas go on, the others wait."},
	{CodeRegistryDenied, Authorization, ActPause, nil, ExitRuntime,
		"the schema registry refuses our credentials",
		"Correct the registry credentials in the worker file."},

	// resource
	{CodeLimitBytes, Resource, ActQuarantine, nil, ExitRuntime,
		"the value is larger than decode.limits.bytes",
		"Raise the limit if such values are legitimate."},
	{CodeLimitDepth, Resource, ActQuarantine, nil, ExitRuntime,
		"the value nests deeper than decode.limits.depth",
		"Raise the limit if such values are legitimate."},
	{CodeLimitItems, Resource, ActQuarantine, nil, ExitRuntime,
		"an array or map has more items than allowed",
		"Raise the limit if such values are legitimate."},
	{CodeLimitExpansion, Resource, ActQuarantine, nil, ExitRuntime,
		"the value expands beyond decode.limits.expansion",
		"Raise the limit if such values are legitimate."},
	{CodeTooLarge, Resource, ActQuarantine, nil, ExitRuntime,
		"the message is larger than the destination takes",
		"Raise max.message.bytes of the destination topic and message.max.bytes of the cluster."},

	// classify and policy
	{CodeRejected, Domain, ActQuarantine, []string{"rule"}, ExitRuntime,
		"a business rule refuses the record",
		"Correct the data or the rule, then repair or redrive."},
	{CodePolicyRule, ConsumerDefect, ActPause, []string{"rule"}, ExitRuntime,
		"a rule of the policy failed to evaluate",
		"Correct the rule: guard optional fields with has()."},
	{CodePolicyPath, ClassNone, ActPause, nil, ExitInput,
		"a rule of the policy reads a place that no record of the schema has",
		"Correct the path, or guard it with has() if a later schema brings it."},
	{CodePolicyUnread, ClassNone, ActPause, nil, ExitInput,
		"the policy has reject rules and no stage of the pipeline asks them",
		"Add a classify stage to the pipeline, or take the reject rules out."},
	{CodePolicyUnknown, ClassNone, ActPause, nil, ExitInput,
		"there is no such policy version",
		"List them: reprieve policy list."},
	{CodeTenantDenied, Authorization, ActQuarantine, nil, ExitRuntime,
		"the record names a tenant that its topic may not carry",
		"Find out who produced it; extend source.tenant.allow only if it is legitimate."},
	{CodeTenantUnreadable, Authorization, ActQuarantine, nil, ExitRuntime,
		"the record's tenant cannot be read",
		"Correct source.tenant or the producer."},
	{CodeTenantRevoked, Authorization, ActQuarantine, nil, ExitRuntime,
		"the tenant is revoked",
		"Restore the tenant or discard with a reason."},
	{CodeResidency, Authorization, ActQuarantine, nil, ExitRuntime,
		"the record may not be processed in this region",
		"Route it to the region it belongs to."},

	// redact
	{CodeRedactFailed, Payload, ActQuarantine, nil, ExitRuntime,
		"the record could not be redacted safely",
		"Look at the item with reveal permission; correct the detector or the producer."},
	{CodeRedactIdentity, Payload, ActQuarantine, []string{"field"}, ExitRuntime,
		"a secret stands in an identity field or the key",
		"Ask the producer to use another identifier."},

	// enrich, route, effects
	{CodeEnrichRule, ConsumerDefect, ActQuarantine, []string{"rule"}, ExitRuntime,
		"an enrich expression failed",
		"Correct the expression: guard optional fields with has()."},
	{CodeEnrichMissing, Domain, ActQuarantine, []string{"lookup"}, ExitRuntime,
		"a look-up has no answer for the record",
		"Add the missing entry or declare a default."},
	{CodeRouteRule, ConsumerDefect, ActQuarantine, []string{"rule"}, ExitRuntime,
		"a route condition failed",
		"Correct the condition: guard optional fields with has()."},
	{CodeRouteNone, Domain, ActQuarantine, nil, ExitRuntime,
		"no route matches and there is no default",
		"Add a default to the route stage."},
	{CodeRouteEncode, Payload, ActQuarantine, []string{"field"}, ExitRuntime,
		"the output cannot be encoded",
		"Correct route.encode or the added fields."},
	{CodeStageCondition, ConsumerDefect, ActQuarantine, []string{"rule"}, ExitRuntime,
		"the when of a stage failed",
		"Correct the condition: guard optional fields with has()."},
	{CodeHTTPUnavailable, Transient, ActRetry, []string{"target"}, ExitRuntime,
		"the HTTP service is not available",
		"Look at the service."},
	{CodeHTTPTimeout, Transient, ActRetry, []string{"target"}, ExitRuntime,
		"the HTTP service did not answer in time",
		"Look at the service."},
	{CodeHTTPAmbiguous, Ambiguous, ActQuarantine, []string{"target"}, ExitRuntime,
		"the HTTP effect may or may not have happened",
		"Ask the service what happened (reconcile) before any redrive."},
	{CodeHTTPRejected, Domain, ActQuarantine, []string{"target", "status"}, ExitRuntime,
		"the HTTP service refused the record",
		"Read the status; correct the data."},
	{CodeHTTPDenied, Authorization, ActPause, []string{"target"}, ExitRuntime,
		"the HTTP service refuses our credentials",
		"Correct the credentials."},
	{CodeHTTPAnswer, Transient, ActRetry, []string{"target", "what"}, ExitRuntime,
		"the HTTP service answered with something that is no answer",
		"Look at what stands between: a proxy's page, a redirect to a login, an answer that is too large."},
	{CodeHTTPRequest, Payload, ActQuarantine, []string{"target", "what"}, ExitRuntime,
		"the HTTP request cannot be made from the record",
		"Correct the record's field or the URL template."},
	{CodeSendTimeout, Transient, ActRetry, nil, ExitRuntime,
		"the destination did not acknowledge in time",
		"Look at the destination's brokers."},
	{CodeSendTopicMissing, Payload, ActQuarantine, []string{"topic"}, ExitRuntime,
		"the destination topic does not exist",
		"Create the topic or correct the route; a redrive never creates topics."},
	{CodeSendDenied, Authorization, ActQuarantine, []string{"topic"}, ExitRuntime,
		"the broker forbids writing to the destination",
		"Grant the ACL or correct the route."},
	{CodeSendFailed, Transient, ActRetry, nil, ExitRuntime,
		"the broker refused the message",
		"Look at the broker's log."},
	{CodeSendKeyless, Payload, ActQuarantine, []string{"topic"}, ExitRuntime,
		"the destination is compacted and the record has no key",
		"Route it elsewhere or give it a key."},

	// retry and crash
	{CodeRetryExhausted, Transient, ActQuarantine, []string{"cause"}, ExitRuntime,
		"the record failed in every retry",
		"Mend the dependency, then redrive."},
	{CodeRetryAge, Transient, ActQuarantine, []string{"cause"}, ExitRuntime,
		"the record is older than the platform lets it be retried",
		"Mend the dependency, then redrive."},
	{CodeInfiniteRetry, ConsumerDefect, ActQuarantine, nil, ExitRuntime,
		"the record was in work at five crashes and is isolated",
		"Find the crash in the stack; redrive after the fix."},
	{CodePanic, ConsumerDefect, ActQuarantine, []string{"where"}, ExitRuntime,
		"processing the record panicked",
		"Report the stack; redrive after the fix."},
	{CodeLineage, Authorization, ActQuarantine, nil, ExitRuntime,
		"a record on the retry topic has no valid signature",
		"Find out who wrote to the retry topic; its attempt count is not believed."},
	{CodeForeignFailure, ConsumerDefect, ActQuarantine, []string{"exception", "stage"}, ExitRuntime,
		"another system dead-lettered the record",
		"Read its exception class and stage."},
	{CodePluginCrashed, ConsumerDefect, ActQuarantine, []string{"plugin"}, ExitRuntime,
		"the plugin process died on the record",
		"Look at the plugin's log; the version may be stopped."},
	{CodePluginTimeout, ConsumerDefect, ActQuarantine, []string{"plugin"}, ExitRuntime,
		"the plugin did not answer in time",
		"Look at the plugin's log."},
	{CodePluginAnswer, ConsumerDefect, ActQuarantine, []string{"plugin", "what"}, ExitRuntime,
		"the plugin's answer breaks the protocol",
		"Run reprieve conform on the plugin."},
	{CodePluginNondeterministic, ConsumerDefect, ActQuarantine, []string{"plugin"}, ExitRuntime,
		"the plugin gave two answers for the same input; the version is stopped",
		"Make it deterministic and publish a new version."},
	{CodePluginRefused, ConsumerDefect, ActQuarantine, []string{"plugin", "what"}, ExitRuntime,
		"the plugin may not run",
		"Run reprieve plugin why NAME."},
	{CodePluginUnavailable, Transient, ActRetry, []string{"plugin", "what"}, ExitRuntime,
		"the plugin cannot be asked now; the record is not to blame",
		"Look at the plugin's log; reprieve plugin why NAME says whether it may run."},

	// letters
	{CodeIngressFailed, ClassNone, ActPause, nil, ExitRuntime,
		"a dead letter was refused by its topic",
		"Look at the dead-letter cluster; nothing is lost: a fallback store takes letters, or the partition waits."},
	{CodeFailureDomain, ClassNone, ActPause, nil, ExitRuntime,
		"neither the dead-letter topic nor a fallback takes failing records; consumption is halted",
		"Restore the dead-letter topic; consumption resumes by itself."},
	{CodeFallbackFailed, Transient, ActQuarantine, nil, ExitEnvironment,
		"a fallback store does not take a letter",
		"Look at the ledger or bucket that quarantine.fallback names."},
	{CodeDependencyDown, ClassNone, ActPause, nil, ExitRuntime,
		"a dependency is known to be down; the source is slowed",
		"Look at the dependency; consumption resumes by itself."},
	{CodePolicyFailed, ClassNone, ActPause, nil, ExitRuntime,
		"a policy rule failed to evaluate",
		"Roll the policy back: reprieve policy rollback."},
	{CodePolicyUnusable, ClassNone, ActPause, nil, ExitRuntime,
		"a policy version on the control topic cannot be used here; the one before stays in force",
		"Read the problems; activate a version that this worker can use, or update the worker."},
	{CodeErrorBudget, ClassNone, ActPause, nil, ExitRuntime,
		"more unknown failures than the budget tolerates; the pipeline stopped",
		"Look at the newest groups (reprieve quarantine groups); when the cause is mended: reprieve pipeline resume NAME --reason ... --credential YOUR-KEY."},
	{CodeControlForged, ClassNone, ActPause, nil, ExitRuntime,
		"an unsigned or wrongly signed control entry was ignored",
		"Find out who may write to the control topic."},
	{CodeControlNotReady, ClassNone, ActPause, nil, ExitEnvironment,
		"the control topic has not been read to its end",
		"Look at the source cluster and the control topic's rights; nothing is polled or redriven until it was read."},
	{CodeLoop, ClassNone, ActQuarantine, nil, ExitRuntime,
		"the item failed again after too many redrives; only a person may send it",
		"Find the cause before another redrive."},

	// brokers, topics
	{CodeBrokerUnreachable, ClassNone, ActPause, nil, ExitEnvironment,
		"the Kafka cluster cannot be reached",
		"Check bootstrap.servers of the cluster in the worker file."},
	{CodeBrokerFatal, ClassNone, ActPause, nil, ExitEnvironment,
		"the Kafka client cannot go on",
		"Read the cause; restart the worker."},
	{CodeBrokerAuth, ClassNone, ActPause, nil, ExitEnvironment,
		"the Kafka cluster refuses our credentials",
		"Correct the cluster's security settings in the worker file."},
	{CodeBrokerConfig, ClassNone, ActPause, nil, ExitInput,
		"the Kafka client refuses a property",
		"Correct the property under clusters in the worker file."},
	{CodeTopicMissing, ClassNone, ActPause, nil, ExitEnvironment,
		"a topic does not exist",
		"Create it: reprieve topics plan shows how."},
	{CodeTopicUnsafe, ClassNone, ActPause, nil, ExitEnvironment,
		"a topic's settings are unsafe for what it is to hold",
		"Change the topic's settings as told."},
	{CodeCommitRefused, ClassNone, ActPause, nil, ExitEnvironment,
		"the broker refused a commit",
		"Look at the consumer group; the records are read again."},
	{CodeTxFenced, ClassNone, ActPause, nil, ExitRuntime,
		"another worker with the same name took over",
		"Give each worker its own name."},
	{CodeTxAborted, ClassNone, ActPause, nil, ExitRuntime,
		"the transaction was aborted; its records are read again",
		"Nothing to do unless it repeats."},
	{CodeSinkFull, ClassNone, ActPause, nil, ExitRuntime,
		"the sink has as much in flight as it may",
		"Nothing to do: back-pressure."},
	{CodeDrainTimeout, ClassNone, ActPause, nil, ExitRuntime,
		"the pipeline did not finish its records before the deadline",
		"They are read again at the next start."},

	// config
	{CodeConfigSyntax, ClassNone, ActPause, nil, ExitInput,
		"the file is not valid YAML",
		"Correct the syntax at the place named."},
	{CodeConfigUnknownKey, ClassNone, ActPause, nil, ExitInput,
		"the key is not known here",
		"Use the name that is suggested."},
	{CodeConfigDuplicateKey, ClassNone, ActPause, nil, ExitInput,
		"the key stands twice",
		"Remove one of them."},
	{CodeConfigType, ClassNone, ActPause, nil, ExitInput,
		"the value has the wrong type",
		"Write it as told."},
	{CodeConfigValue, ClassNone, ActPause, nil, ExitInput,
		"the value is not allowed",
		"Write it as told."},
	{CodeConfigMissing, ClassNone, ActPause, nil, ExitInput,
		"a required key is missing",
		"Add it."},
	{CodeConfigVariable, ClassNone, ActPause, nil, ExitInput,
		"a variable cannot be resolved",
		"Set the variable or give it a default: ${NAME:-default}."},
	{CodeConfigAlias, ClassNone, ActPause, nil, ExitInput,
		"aliases expand too far",
		"Write the value out."},
	{CodeConfigDocument, ClassNone, ActPause, nil, ExitInput,
		"the file has more than one document",
		"Split it into two files."},
	{CodeConfigReference, ClassNone, ActPause, nil, ExitInput,
		"the name is not defined in the worker file",
		"Define it there or correct the name."},
	{CodeConfigUnsafe, ClassNone, ActPause, nil, ExitInput,
		"the configuration would lose or leak records",
		"Change it as told."},
	{CodeConfigOpen, ClassNone, ActPause, nil, ExitInput,
		"a question to settle before a dead-letter path is enabled is open",
		"Answer it in the file."},
	{CodeConfigRead, ClassNone, ActPause, nil, ExitInput,
		"the file cannot be read",
		"Check the path and its permissions."},
	{CodeConfigExpression, ClassNone, ActPause, nil, ExitInput,
		"the expression does not compile",
		"Correct it at the place named."},
	{CodePathInvalid, ClassNone, ActPause, nil, ExitInput,
		"the path is not a JSON pointer",
		"Write it like /customer/email."},
	{CodeUsage, ClassNone, ActPause, nil, ExitInput,
		"the command's words are off",
		"See --help."},
	{CodeInputInvalid, ClassNone, ActPause, nil, ExitInput,
		"the input cannot be read",
		"Correct the line named."},

	// custody and ledger
	{CodeLedgerUnavailable, ClassNone, ActPause, nil, ExitEnvironment,
		"the ledger cannot be reached",
		"Check the ledger's URL and its server; nothing was written."},
	{CodeLedgerBusy, ClassNone, ActPause, nil, ExitEnvironment,
		"the ledger stayed locked too long",
		"Try again; another process holds a long write."},
	{CodeLedgerVersion, ClassNone, ActPause, nil, ExitEnvironment,
		"the ledger's schema is not of this version",
		"Run reprieve ledger migrate."},
	{CodeLedgerCorrupt, ClassNone, ActPause, nil, ExitRuntime,
		"the ledger's history does not verify",
		"Keep the file; run reprieve ledger verify and restore from a backup."},
	{CodeLedgerFull, ClassNone, ActPause, nil, ExitEnvironment,
		"the ledger has no space left",
		"Free disk space; the custodian waits and goes on."},
	{CodeLedgerReadOnly, ClassNone, ActPause, nil, ExitEnvironment,
		"the ledger is read-only",
		"Connect to the primary; the custodian waits and goes on."},
	{CodeCustodyConflict, ClassNone, ActPause, nil, ExitRefused,
		"an item with this id has other bytes",
		"Look at both; one of them is not what it says."},
	{CodeCustodyUnavailable, ClassNone, ActPause, nil, ExitEnvironment,
		"custody cannot be taken now; nothing was written",
		"Try again."},
	{CodeStateInvalid, ClassNone, ActPause, nil, ExitRefused,
		"InvalidStateTransitionException: the item's state does not allow this",
		"DEAD_LETTERED items are triaged first, TRIAGED ones repaired or redriven. See reprieve quarantine show ID for its state."},
	{CodeStateChanged, ClassNone, ActPause, nil, ExitRefused,
		"somebody else changed the item meanwhile; nothing was changed",
		"Look at it again and repeat if it still applies."},
	{CodeItemUnknown, ClassNone, ActPause, nil, ExitInput,
		"there is no such item",
		"List them: reprieve quarantine list."},
	{CodeItemUnconfirmed, ClassNone, ActPause, nil, ExitRefused,
		"the source has not moved past the item yet",
		"Wait for the custodian, or state unconfirmed: accepted in the manifest."},
	{CodeItemHeld, ClassNone, ActPause, nil, ExitRefused,
		"the item is held",
		"Release it first: reprieve quarantine release."},
	{CodePayloadMissing, ClassNone, ActPause, nil, ExitRefused,
		"the item's faithful bytes are gone",
		"Only a registered repair of what is left can be sent."},
	{CodePayloadUnfaithful, ClassNone, ActPause, nil, ExitRefused,
		"the ledger has only redacted bytes and the source no longer has the original",
		"Repair the item, or resolve it with evidence."},
	{CodePayloadUnavailable, ClassNone, ActPause, nil, ExitEnvironment,
		"the bucket of large payloads does not take, give or delete an object",
		"Look at the bucket of custody.large; then do it again."},
	{CodePermissionDenied, ClassNone, ActPause, nil, ExitRefused,
		"the actor may not do this",
		"Ask somebody with the permission named."},
	{CodeTenantForbidden, ClassNone, ActPause, nil, ExitRefused,
		"the actor may not see this tenant",
		"Ask somebody of that tenant."},
	{CodeTicketMissing, ClassNone, ActPause, nil, ExitInput,
		"triage needs a ticket",
		"Pass --ticket."},
	{CodeReasonMissing, ClassNone, ActPause, nil, ExitInput,
		"this needs a reason",
		"Pass --reason."},
	{CodeEvidenceMissing, ClassNone, ActPause, nil, ExitInput,
		"this needs evidence",
		"Pass --evidence."},
	{CodeLegalHold, ClassNone, ActPause, nil, ExitRefused,
		"the item is under legal hold",
		"Lift it first: reprieve ledger unhold."},
	{CodeErased, ClassNone, ActPause, nil, ExitRefused,
		"the bytes were erased",
		"Nothing can be sent or shown."},
	{CodeKeyDestroyed, ClassNone, ActPause, nil, ExitRefused,
		"the tenant's key was destroyed; the bytes cannot be opened",
		"Nothing can be sent or shown."},
	{CodeKeyUnknown, ClassNone, ActPause, nil, ExitInput,
		"no such key is configured",
		"Add the key to the worker file."},
	{CodeKeyUnpublished, ClassNone, ActPause, nil, ExitEnvironment,
		"no public key to seal to is on the control topic",
		"Run a custodian with the same worker file: reprieve run --roles custodian. It makes the keys and publishes them."},
	{CodeSealFailed, ClassNone, ActPause, nil, ExitRuntime,
		"the bytes could not be sealed",
		"Check keys.keeper and that what it names answers."},
	{CodeSealBroken, ClassNone, ActPause, nil, ExitRefused,
		"the sealed bytes do not open: they were changed, or sealed for another tenant, key or item",
		"Compare the item's id and reprieve-enc with the letter on the topic; restore the bytes from there."},
	{CodeSelectionInvalid, ClassNone, ActPause, nil, ExitInput,
		"the selection cannot be read",
		"See the list of terms."},
	{CodeSnapshotRequired, ClassNone, ActPause, nil, ExitRefused,
		"a bulk change needs a snapshot, not a filter",
		"Take one first; its id, count and digest are shown."},
	{CodeArchiveFailed, ClassNone, ActPause, nil, ExitEnvironment,
		"the archive does not take or give an object",
		"Look at the bucket of custody.retention.archive; nothing was dropped, expiry goes on when it is back."},
	{CodeRetentionEnding, ClassNone, ActPause, nil, ExitRuntime,
		"open items end soon",
		"Triage them: redrive, resolve, discard or extend them before their retention ends."},
	{CodeRetentionEscalated, ClassNone, ActPause, nil, ExitRuntime,
		"open items end very soon and their owner has not acted",
		"Triage them or extend them today."},
	{CodeRetentionOutlived, ClassNone, ActPause, nil, ExitRuntime,
		"open items outlive what they need: their source, their key or their schema ends before they do",
		"See them with reprieve quarantine aging --needs; redrive or resolve them before, or keep it longer: retention.ms of the topic, the schema in its registry."},
	{CodeObjectiveMissed, ClassNone, ActPause, nil, ExitRuntime,
		"open items are older than an objective allows",
		"Look at reprieve quarantine aging and triage the oldest."},
	{CodeGlassBroken, ClassNone, ActPause, nil, ExitRuntime,
		"a person has taken a permission that they do not have",
		"Ask them why; the history names what they did with it."},
	{CodeAlertUndelivered, ClassNone, ActPause, nil, ExitEnvironment,
		"an alert could not be delivered",
		"Look at alerts.webhook in the worker file and at who receives it."},
	{CodeUnauthenticated, ClassNone, ActPause, nil, ExitRefused,
		"the caller is not known",
		"Send Authorization: Bearer and a token of http.tokens in the worker file."},
	{CodeIdempotencyReused, ClassNone, ActPause, nil, ExitInput,
		"an idempotency key was used for two different requests",
		"Use a new key for a new request, the same one only to repeat a request."},
	{CodeSnapshotChanged, ClassNone, ActPause, nil, ExitRefused,
		"the snapshot does not have this count or digest",
		"Take a new one."},
	{CodeRuleInvalid, ClassNone, ActPause, nil, ExitInput,
		"the standing rule is not allowed",
		"Correct it as told."},
	{CodeLetterInvalid, ClassNone, ActPause, nil, ExitRuntime,
		"the message is not a dead letter that can be read",
		"It is kept raw with its position."},
	{CodeSignatureInvalid, ClassNone, ActPause, nil, ExitRefused,
		"the signature does not verify",
		"Check keys.hmac; the message is not believed."},

	// transforms
	{CodeTransformUnknown, ClassNone, ActPause, nil, ExitInput,
		"there is no such transform and version",
		"List them: reprieve transform list."},
	{CodeTransformConfig, ClassNone, ActPause, nil, ExitInput,
		"the transform's configuration is not valid",
		"Correct it as told."},
	{CodeTransformFailed, ClassNone, ActPause, nil, ExitRefused,
		"the transform could not repair the item",
		"Read its report; try another transform."},
	{CodeTransformIdentity, ClassNone, ActPause, nil, ExitRefused,
		"the repair would change the record's identity",
		"Declare a new logical id with an intent, or mend the transform."},
	{CodeTransformKey, ClassNone, ActPause, nil, ExitRefused,
		"the repair would change the record's key",
		"Declare it, or mend the transform."},
	{CodeTransformSchema, ClassNone, ActPause, nil, ExitRefused,
		"the repaired record does not satisfy its schema",
		"Mend the transform."},
	{CodeTransformInvariant, ClassNone, ActPause, nil, ExitRefused,
		"the repaired record breaks a domain invariant",
		"Mend the transform."},
	{CodeTransformSize, ClassNone, ActPause, nil, ExitRefused,
		"the repaired record is too large",
		"Mend the transform."},
	{CodePluginLock, ClassNone, ActPause, nil, ExitRefused,
		"the plugin is not as pinned in plugins.lock",
		"Run reprieve plugin why NAME."},
	{CodePluginUnknown, ClassNone, ActPause, nil, ExitInput,
		"no such plugin is installed",
		"Install it: reprieve plugin install."},
	{CodePluginSandbox, ClassNone, ActPause, nil, ExitEnvironment,
		"the sandbox level asked for cannot be had here",
		"See reprieve plugin why NAME@VERSION: it says which level can be had here and what is missing."},
	{CodePluginHandshake, ClassNone, ActPause, nil, ExitRuntime,
		"the plugin did not start as the protocol asks",
		"Run reprieve conform on it."},

	// redrive
	{CodeManifestInvalid, ClassNone, ActPause, nil, ExitInput,
		"the manifest cannot be read",
		"Plan it again."},
	{CodeManifestDigest, ClassNone, ActPause, nil, ExitRefused,
		"the manifest is not byte-equal to its digest",
		"Somebody changed it; plan it again."},
	{CodeManifestUnknown, ClassNone, ActPause, nil, ExitInput,
		"there is no such manifest",
		"List them: reprieve redrive list."},
	{CodeManifestEmpty, ClassNone, ActPause, nil, ExitRefused,
		"the selection has no item that may be redriven",
		"See the reasons; triage and repair first."},
	{CodeDryRunRequired, ClassNone, ActPause, nil, ExitRefused,
		"the manifest was not dry-run",
		"Run reprieve redrive dry-run first."},
	{CodeApprovalMissing, ClassNone, ActPause, nil, ExitRefused,
		"the manifest has no valid approval",
		"Ask an approver: reprieve redrive approve."},
	{CodeApprovalSelf, ClassNone, ActPause, nil, ExitRefused,
		"the requester may not approve their own manifest",
		"Ask somebody else."},
	{CodeApprovalExpired, ClassNone, ActPause, nil, ExitRefused,
		"the approval has expired",
		"Approve it again."},
	{CodeApprovalInvalid, ClassNone, ActPause, nil, ExitRefused,
		"the approval's signature, role or digest is wrong",
		"Approve it again with a registered key."},
	{CodeApprovalRevoked, ClassNone, ActPause, nil, ExitRefused,
		"the approval was revoked",
		"Ask why before approving again."},
	{CodeRedriveRate, ClassNone, ActPause, nil, ExitRefused,
		"the rate is above what is allowed",
		"Lower it, or record a two-person rate."},
	{CodeRedrivePrimary, ClassNone, ActPause, nil, ExitRefused,
		"a redrive never writes to a primary topic",
		"Use the retry topic."},
	{CodeRedriveTenant, ClassNone, ActPause, nil, ExitRefused,
		"a redrive never crosses tenants",
		"Plan one for each tenant."},
	{CodeRedriveHalted, ClassNone, ActPause, nil, ExitRefused,
		"redrives are halted",
		"See reprieve redrive status. Another person lifts it with reprieve redrive lift; two do where all pipelines are halted."},
	{CodeRedriveState, ClassNone, ActPause, nil, ExitRefused,
		"the run's state does not allow this",
		"See reprieve redrive status."},
	{CodeRedriveUncertain, ClassNone, ActPause, nil, ExitRefused,
		"a killed run may have sent some of its items",
		"Continue with reprieve redrive resume, which names them."},
	{CodeRedriveMismatch, ClassNone, ActPause, nil, ExitRuntime,
		"the counts of the run do not reconcile",
		"Redrives are halted; find the difference first."},
	{CodeRedriveThreshold, ClassNone, ActPause, nil, ExitRuntime,
		"the run crossed a stop threshold",
		"Look at the failures before resuming."},
	{CodeRedriveHorizon, ClassNone, ActPause, nil, ExitRefused,
		"the idempotency horizon is past or unknown",
		"The effect must be asked about first."},
	{CodeRedriveOpenOrder, ClassNone, ActPause, nil, ExitRefused,
		"an earlier item of the same entity is not settled",
		"Redrive it first."},
	{CodeRedriveTime, ClassNone, ActPause, nil, ExitRefused,
		"the record's own time is more than ten years away: seconds were taken for milliseconds",
		"Find the producer; resolve the item or have it sent anew."},
	{CodeRedriveIdentity, ClassNone, ActPause, nil, ExitRefused,
		"the repair makes a new logical id and the manifest keeps identities",
		"Plan those items with --identity new and an --intent; two people approve."},
	{CodeReconcileFirst, ClassNone, ActPause, nil, ExitRefused,
		"whether the effect exists is unknown: it must be asked about before a send",
		"Give the pipeline a question (reconcile: http), or have a person find out and resolve or confirm the item absent."},
	{CodeSuperseded, ClassNone, ActPause, nil, ExitRefused,
		"a newer state of the same entity takes its place",
		"Nothing is lost: it is resolved as superseded once the newer one has its effect."},
	{CodeCompensation, ClassNone, ActPause, nil, ExitRefused,
		"automatic compensation is refused",
		"Compensation needs a reconciliation contract and two people."},

	// general
	{CodeInternal, ClassNone, ActPause, nil, ExitRuntime,
		"something is wrong in Reprieve itself",
		"Report it with the text above."},
	{CodeEnvironmentTool, ClassNone, ActPause, nil, ExitEnvironment,
		"the environment lacks something",
		"Install or start what is named."},
	{CodeInterrupted, ClassNone, ActPause, nil, ExitRuntime,
		"the command was interrupted",
		"Run it again; what was done stays done."},
	{CodeNotYet, ClassNone, ActPause, nil, ExitInput,
		"this version does not do that yet",
		"Leave it out."},
}

var codeIndex = func() map[Code]*CodeInfo {
	m := make(map[Code]*CodeInfo, len(codeTable))
	for i := range codeTable {
		m[codeTable[i].Code] = &codeTable[i]
	}
	return m
}()

// Lookup returns what follows from a code. An unknown one is a consumer defect that is quarantined, with the code as text.
func Lookup(c Code) CodeInfo {
	if i, ok := codeIndex[c]; ok {
		return *i
	}
	return CodeInfo{Code: c, Class: ConsumerDefect, Action: ActQuarantine, Exit: ExitRuntime, Text: string(c)}
}

// Known tells whether the code is in the table.
func Known(c Code) bool { return codeIndex[c] != nil }

// Codes returns the whole table in its order.
func Codes() []CodeInfo { return slices.Clone(codeTable) }
