// The batch binding: what of librdkafka it calls, declared by hand, and what Go calls of it.
//
// confluent-kafka-go links the library as an archive and keeps its header to itself, so the prototypes and structs that are
// needed stand here. They are part of the library's stable ABI; rp_check compares version and sizes when the first client is
// opened. No function of Go is ever called from C: callbacks only record, under the client's lock or with one atomic step,
// and Go fetches what was recorded.
#ifndef REPRIEVE_NATIVE_H
#define REPRIEVE_NATIVE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

// ---- librdkafka 2.11

typedef struct rd_kafka_s rd_kafka_t;
typedef struct rd_kafka_conf_s rd_kafka_conf_t;
typedef struct rd_kafka_queue_s rd_kafka_queue_t;
typedef struct rd_kafka_topic_s rd_kafka_topic_t;
typedef struct rd_kafka_headers_s rd_kafka_headers_t;
typedef struct rd_kafka_error_s rd_kafka_error_t;
typedef struct rd_kafka_op_s rd_kafka_event_t;
typedef struct rd_kafka_consumer_group_metadata_s rd_kafka_consumer_group_metadata_t;

typedef struct rd_kafka_message_s {
	int err;
	rd_kafka_topic_t *rkt;
	int32_t partition;
	void *payload;
	size_t len;
	void *key;
	size_t key_len;
	int64_t offset;
	void *_private;
} rd_kafka_message_t;

typedef struct rd_kafka_topic_partition_s {
	char *topic;
	int32_t partition;
	int64_t offset;
	void *metadata;
	size_t metadata_size;
	void *opaque;
	int err;
	void *_private;
} rd_kafka_topic_partition_t;

typedef struct rd_kafka_topic_partition_list_s {
	int cnt;
	int size;
	rd_kafka_topic_partition_t *elems;
} rd_kafka_topic_partition_list_t;

typedef enum {
	RP_V_END,
	RP_V_TOPIC,
	RP_V_RKT,
	RP_V_PARTITION,
	RP_V_VALUE,
	RP_V_KEY,
	RP_V_OPAQUE,
	RP_V_MSGFLAGS,
	RP_V_TIMESTAMP,
	RP_V_HEADER,
	RP_V_HEADERS
} rd_kafka_vtype_t;

typedef struct rd_kafka_vu_s {
	rd_kafka_vtype_t vtype;
	union {
		const char *cstr;
		rd_kafka_topic_t *rkt;
		int i;
		int32_t i32;
		int64_t i64;
		struct {
			void *ptr;
			size_t size;
		} mem;
		rd_kafka_headers_t *headers;
		void *ptr;
		char _pad[64];
	} u;
} rd_kafka_vu_t;

// error codes that the C side decides by
#define RP_ERR_ASSIGN (-175)
#define RP_ERR_REVOKE (-174)
#define RP_ERR_FATAL (-150)
#define RP_ERR_INVALID_ARG (-186)
#define RP_ERR_TIMED_OUT (-185)
#define RP_ERR_RESOURCES (-194)
#define RP_ERR_IN_PROGRESS (-178)

// RD_KAFKA_DESTROY_F_NO_CONSUMER_CLOSE: the group is left already, or cannot be left
#define RP_DESTROY_QUIETLY 0x8

int rd_kafka_version(void);
const char *rd_kafka_err2str(int);
rd_kafka_conf_t *rd_kafka_conf_new(void);
void rd_kafka_conf_destroy(rd_kafka_conf_t *);
int rd_kafka_conf_set(rd_kafka_conf_t *, const char *, const char *, char *, size_t);
void rd_kafka_conf_set_opaque(rd_kafka_conf_t *, void *);
void rd_kafka_conf_set_dr_msg_cb(rd_kafka_conf_t *, void (*)(rd_kafka_t *, const rd_kafka_message_t *, void *));
void rd_kafka_conf_set_rebalance_cb(rd_kafka_conf_t *, void (*)(rd_kafka_t *, int, rd_kafka_topic_partition_list_t *, void *));
void rd_kafka_conf_set_error_cb(rd_kafka_conf_t *, void (*)(rd_kafka_t *, int, const char *, void *));
void rd_kafka_conf_set_log_cb(rd_kafka_conf_t *, void (*)(const rd_kafka_t *, int, const char *, const char *));
rd_kafka_t *rd_kafka_new(int, rd_kafka_conf_t *, char *, size_t);
void rd_kafka_destroy_flags(rd_kafka_t *, int);
const char *rd_kafka_name(const rd_kafka_t *);
void *rd_kafka_opaque(const rd_kafka_t *);
int rd_kafka_fatal_error(rd_kafka_t *, char *, size_t);
int rd_kafka_poll(rd_kafka_t *, int);
int rd_kafka_poll_set_consumer(rd_kafka_t *);
rd_kafka_queue_t *rd_kafka_queue_new(rd_kafka_t *);
rd_kafka_queue_t *rd_kafka_queue_get_main(rd_kafka_t *);
rd_kafka_queue_t *rd_kafka_queue_get_consumer(rd_kafka_t *);
void rd_kafka_queue_yield(rd_kafka_queue_t *);
void rd_kafka_queue_destroy(rd_kafka_queue_t *);
rd_kafka_event_t *rd_kafka_queue_poll(rd_kafka_queue_t *, int);
int rd_kafka_event_error(rd_kafka_event_t *);
const char *rd_kafka_event_error_string(rd_kafka_event_t *);
rd_kafka_topic_partition_list_t *rd_kafka_event_topic_partition_list(rd_kafka_event_t *);
void rd_kafka_event_destroy(rd_kafka_event_t *);
rd_kafka_topic_t *rd_kafka_topic_new(rd_kafka_t *, const char *, void *);
const char *rd_kafka_topic_name(const rd_kafka_topic_t *);
void rd_kafka_topic_destroy(rd_kafka_topic_t *);
rd_kafka_topic_partition_list_t *rd_kafka_topic_partition_list_new(int);
rd_kafka_topic_partition_list_t *rd_kafka_topic_partition_list_copy(const rd_kafka_topic_partition_list_t *);
void rd_kafka_topic_partition_list_destroy(rd_kafka_topic_partition_list_t *);
rd_kafka_topic_partition_t *rd_kafka_topic_partition_list_add(rd_kafka_topic_partition_list_t *, const char *, int32_t);
int rd_kafka_subscribe(rd_kafka_t *, const rd_kafka_topic_partition_list_t *);
int rd_kafka_assign(rd_kafka_t *, const rd_kafka_topic_partition_list_t *);
int rd_kafka_assignment_lost(rd_kafka_t *);
rd_kafka_error_t *rd_kafka_incremental_assign(rd_kafka_t *, const rd_kafka_topic_partition_list_t *);
rd_kafka_error_t *rd_kafka_incremental_unassign(rd_kafka_t *, const rd_kafka_topic_partition_list_t *);
const char *rd_kafka_rebalance_protocol(rd_kafka_t *);
int rd_kafka_committed(rd_kafka_t *, rd_kafka_topic_partition_list_t *, int);
int rd_kafka_commit_queue(rd_kafka_t *, const rd_kafka_topic_partition_list_t *, rd_kafka_queue_t *,
	void (*)(rd_kafka_t *, int, rd_kafka_topic_partition_list_t *, void *), void *);
int rd_kafka_pause_partitions(rd_kafka_t *, rd_kafka_topic_partition_list_t *);
int rd_kafka_resume_partitions(rd_kafka_t *, rd_kafka_topic_partition_list_t *);
rd_kafka_error_t *rd_kafka_seek_partitions(rd_kafka_t *, rd_kafka_topic_partition_list_t *, int);
rd_kafka_error_t *rd_kafka_consumer_close_queue(rd_kafka_t *, rd_kafka_queue_t *);
int rd_kafka_consumer_closed(rd_kafka_t *);
ssize_t rd_kafka_consume_batch_queue(rd_kafka_queue_t *, int, rd_kafka_message_t **, size_t);
void rd_kafka_message_destroy(rd_kafka_message_t *);
int64_t rd_kafka_message_timestamp(const rd_kafka_message_t *, int *);
int rd_kafka_message_headers(const rd_kafka_message_t *, rd_kafka_headers_t **);
size_t rd_kafka_header_cnt(const rd_kafka_headers_t *);
int rd_kafka_header_get_all(const rd_kafka_headers_t *, size_t, const char **, const void **, size_t *);
rd_kafka_headers_t *rd_kafka_headers_new(size_t);
void rd_kafka_headers_destroy(rd_kafka_headers_t *);
int rd_kafka_header_add(rd_kafka_headers_t *, const char *, ssize_t, const void *, ssize_t);
rd_kafka_error_t *rd_kafka_produceva(rd_kafka_t *, const rd_kafka_vu_t *, size_t);
int rd_kafka_flush(rd_kafka_t *, int);
int rd_kafka_purge(rd_kafka_t *, int);
int rd_kafka_error_code(const rd_kafka_error_t *);
const char *rd_kafka_error_string(const rd_kafka_error_t *);
int rd_kafka_error_is_fatal(const rd_kafka_error_t *);
int rd_kafka_error_is_retriable(const rd_kafka_error_t *);
int rd_kafka_error_txn_requires_abort(const rd_kafka_error_t *);
void rd_kafka_error_destroy(rd_kafka_error_t *);
rd_kafka_error_t *rd_kafka_init_transactions(rd_kafka_t *, int);
rd_kafka_error_t *rd_kafka_begin_transaction(rd_kafka_t *);
rd_kafka_error_t *rd_kafka_commit_transaction(rd_kafka_t *, int);
rd_kafka_error_t *rd_kafka_abort_transaction(rd_kafka_t *, int);
rd_kafka_error_t *rd_kafka_send_offsets_to_transaction(rd_kafka_t *, const rd_kafka_topic_partition_list_t *,
	const rd_kafka_consumer_group_metadata_t *, int);
rd_kafka_consumer_group_metadata_t *rd_kafka_consumer_group_metadata(rd_kafka_t *);
void rd_kafka_consumer_group_metadata_destroy(rd_kafka_consumer_group_metadata_t *);
rd_kafka_error_t *rd_kafka_consumer_group_metadata_write(const rd_kafka_consumer_group_metadata_t *, void **, size_t *);
rd_kafka_error_t *rd_kafka_consumer_group_metadata_read(rd_kafka_consumer_group_metadata_t **, const void *, size_t);
void rd_kafka_mem_free(rd_kafka_t *, void *);

// ---- ours

// rp_fault is an answer of the library; code 0 is success.
typedef struct {
	int32_t code, fatal, retriable, abort;
	char text[512];
} rp_fault;

// rp_note is something that the library said by itself.
typedef struct {
	int32_t level; // of a log line: syslog's
	int32_t code;  // of an error
	int32_t fatal;
	int32_t lost;     // notes that found no room since the one before
	char about[256];  // topic of an error, tag of a log line
	char text[512];
} rp_note;

#define RP_NOTES 64 // a power of two

// rp_ring keeps the newest notes until Go takes them.
typedef struct {
	uint32_t from, to;
	int32_t lost;
	rp_note notes[RP_NOTES];
} rp_ring;

// rp_change is one change of the assignment, recorded and not answered.
typedef struct rp_change {
	struct rp_change *next;
	rd_kafka_topic_partition_list_t *list;
	int32_t assign, lost, cooperative;
} rp_change;

struct rp_msg;
struct rp_unit;

// what rp_client.closing says of rebalances
#define RP_REFUSES 1 // they are answered at once, with "none"
#define RP_LEAVES 2  // they are noted, and answered by rp_leave

// rp_client is a producer or a consumer. done, failed, aloft: producer only.
typedef struct {
	rd_kafka_t *rk;
	rd_kafka_queue_t *q;
	void *lock;
	rp_ring logs, errors;
	rp_change *changes, **last;
	struct rp_unit *done, **done_end;
	struct rp_msg *failed, **failed_end;
	int64_t aloft;    // messages that the library has and did not report
	int32_t told;     // something of the above waits for Go: read without the lock
	int32_t closing;  // how a rebalance is answered: not here, or as below
	int32_t asked;    // while it leaves: a rebalance waits for an answer
	rd_kafka_topic_t **topics;
	int32_t ntopics, captopics;
} rp_client;

// rp_header, of a record or of a message; vlen -1 is null.
typedef struct {
	const char *name;
	const uint8_t *val;
	int32_t nlen, vlen;
} rp_header;

// rp_record is one record in memory that the library lent; a length of -1 is null.
typedef struct {
	const uint8_t *key, *val;
	int64_t offset, time;
	int32_t klen, vlen, header, headers, time_type, pad;
} rp_record;

// rp_run is consecutive records of one partition in a batch.
typedef struct {
	rd_kafka_topic_t *topic;
	int32_t partition, from, n, pad;
} rp_run;

// rp_batch is what one fetch brought, kept until its runs are released.
typedef struct {
	rd_kafka_message_t **lent; // NULL where released
	rp_record *records;
	rp_run *runs;
	rp_header *headers;
	int32_t n, cap, nruns, nheaders, capheaders, pad;
} rp_batch;

// rp_msg is one message to be sent, then its answer.
typedef struct rp_msg {
	struct rp_msg *next; // in the list of the failed
	struct rp_unit *unit;
	rd_kafka_topic_t *topic;
	const uint8_t *key, *val;
	int64_t at; // timestamp, then offset
	int32_t klen, vlen, partition, header, headers;
	int32_t code; // of the answer; RP_UNANSWERED before
} rp_msg;

#define RP_UNANSWERED 1

// rp_unit is the messages of one Sending: one completion.
typedef struct rp_unit {
	struct rp_unit *next; // in the list of the done
	rp_msg *msgs;
	rp_header *headers;
	uint8_t *bytes; // what is not borrowed
	int64_t capbytes;
	int32_t capmsgs, capheaders;
	int32_t open; // messages without a final answer
	int32_t id;   // Go's
} rp_unit;

// rp_live counts what was made and not freed, for tests.
typedef struct {
	int64_t clients, batches, lent, units;
} rp_live;

int rp_check(char *why, size_t len);
void rp_counts(rp_live *out);

rp_client *rp_open(int producer, char **settings, int n, rp_fault *f);
void rp_free(rp_client *c);
int rp_take_note(rp_client *c, int error, rp_note *out);
rp_change *rp_take_change(rp_client *c);
void rp_change_free(rp_change *ch);
rd_kafka_topic_t *rp_topic(rp_client *c, const char *name);
void rp_list_add(rd_kafka_topic_partition_list_t *l, const char *topic, int32_t partition, int64_t offset, const char *meta,
	size_t len);

void rp_fault_of(rp_fault *f, rd_kafka_error_t *e);
void rp_fault_code(rp_fault *f, int code);

void rp_assign(rp_client *c, const rd_kafka_topic_partition_list_t *l, int how, rp_fault *f);
void rp_commit(rp_client *c, const rd_kafka_topic_partition_list_t *l, rp_fault *f, char *topic, size_t len);
void rp_group(rp_client *c, void **out, size_t *len, rp_fault *f);
void rp_leave(rp_client *c, int timeout_ms, rp_fault *f);

rp_batch *rp_batch_new(int cap);
void rp_batch_free(rp_batch *b);
int rp_fetch(rp_client *c, rp_batch *b, int timeout_ms);
void rp_release(rp_batch *b, int from, int n);

rp_unit *rp_unit_new(void);
int rp_unit_room(rp_unit *u, int msgs, int headers, int64_t bytes);
void rp_unit_free(rp_unit *u);
int rp_send(rp_client *c, rp_unit *u, int from, int to, rp_fault *f);
int rp_serve(rp_client *c, int timeout_ms);
void rp_take_reports(rp_client *c, rp_unit **done, rp_msg **failed);

void rp_tx(rp_client *c, int what, int timeout_ms, rp_fault *f);
void rp_tx_offsets(rp_client *c, const rd_kafka_topic_partition_list_t *l, const void *group, size_t len, int timeout_ms,
	rp_fault *f);

#endif
