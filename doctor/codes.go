package doctor

import "github.com/tridentd/tridentd/batch"

// Codes that only checks give. A fault that also stops a run has the run's code. docs/reference/doctor.md lists all that a
// check may give.
const (
	CodeRefused     batch.Code = "refused"          // nothing listens at the address
	CodeUnresolved  batch.Code = "unresolved"       // a host name isn't known
	CodeNotKafka    batch.Code = "not_kafka"        // something else answers at a broker's address
	CodeTLS         batch.Code = "tls"              // the two ends don't agree about TLS, or one distrusts the other
	CodeVersion     batch.Code = "broker_version"   // a broker is too old
	CodeNoLeader    batch.Code = "no_leader"        // a partition can't be read, as no broker leads it
	CodeReplicas    batch.Code = "under_replicated" // a partition has fewer replicas in sync than it should
	CodeCompacted   batch.Code = "compacted"        // compaction may take what a replay needs
	CodeRetention   batch.Code = "retention"        // records may be deleted before they are processed
	CodeClock       batch.Code = "clock"            // two clocks differ
	CodeNoMatch     batch.Code = "no_match"         // a pattern matches nothing
	CodeNotSeen     batch.Code = "not_seen"         // it can't be checked, as a right to look is missing
	CodeNotChecked  batch.Code = "not_checked"      // it had not answered when the time was up
	CodeSpace       batch.Code = "disk_space"       // little room is left on the device
	CodeMemory      batch.Code = "memory"           // little memory for what the pipeline may hold
	CodeNotWritable batch.Code = "not_writable"     // a directory can't be made or written to
)
