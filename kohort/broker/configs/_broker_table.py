"""Configs of a broker as Apache Kafka 4.4.0 defines them, one in each line of a table.

The columns are name, update mode, type, default and valid values. The mode is ``r`` for a config
that only the broker's file sets. It is ``c`` for one that may change for all brokers at the same
time, and ``b`` for one that may change for each broker. ``-`` is no default and ``""`` an empty
one. Valid values are ``lowest..highest`` or choices.
"""

from __future__ import annotations

TABLE = """\
add.partitions.to.txn.retry.backoff.max.ms r int 100 0..
add.partitions.to.txn.retry.backoff.ms r int 20 1..
advertised.listeners r list -
alter.config.policy.class.name r class -
alter.log.dirs.replication.quota.window.num r int 11 1..
alter.log.dirs.replication.quota.window.size.seconds r int 1 1..
authorizer.class.name r string ""
auto.create.topics.enable r boolean true
auto.leader.rebalance.enable r boolean true
background.threads c int 10 1..
broker.heartbeat.interval.ms r int 2000
broker.id r int -1
broker.rack r string -
broker.session.timeout.ms r int 9000
client.quota.callback.class r class -
compression.gzip.level c int -1 -1..9
compression.lz4.level c int 9 1..17
compression.type c string producer gzip|lz4|producer|snappy|uncompressed|zstd
compression.zstd.level c int 3 -131072..22
config.providers c list ""
connection.failed.authentication.delay.ms r int 100 0..
connections.max.idle.ms r long 600000
connections.max.reauth.ms r long 0
controlled.shutdown.enable r boolean true
controller.listener.names r list -
controller.quorum.append.linger.ms r int 25 0..
controller.quorum.auto.join.enable r boolean false
controller.quorum.bootstrap.servers r list ""
controller.quorum.election.backoff.max.ms r int 1000 0..
controller.quorum.election.timeout.ms r int 1000 0..
controller.quorum.fetch.max.bytes r int 1048576 1..
controller.quorum.fetch.snapshot.max.bytes r int 1048576 1..
controller.quorum.fetch.timeout.ms r int 2000 0..
controller.quorum.request.timeout.ms r int 2000 0..
controller.quorum.retry.backoff.ms r int 20 0..
controller.quorum.voters r list ""
controller.quota.window.num r int 11 1..
controller.quota.window.size.seconds r int 1 1..
controller.socket.timeout.ms r int 30000
cordoned.log.dirs b list ""
create.topic.policy.class.name r class -
default.replication.factor r int 1
delegation.token.expiry.check.interval.ms r long 3600000 1..
delegation.token.expiry.time.ms r long 86400000 1..
delegation.token.max.lifetime.ms r long 604800000 1..
delegation.token.secret.key r password -
delete.records.purgatory.purge.interval.requests r int 1
delete.topic.enable r boolean true
early.start.listeners r list -
errors.deadletterqueue.auto.create.topics.enable c boolean false
errors.deadletterqueue.topic.name.prefix c string dlq.
fetch.max.bytes r int 57671680 1024..
fetch.purgatory.purge.interval.requests r int 1000
follower.fetch.last.tiered.offset.enable c boolean false
group.consumer.assignment.interval.ms c int 1000 0..
group.consumer.assignors r list uniform,range
group.consumer.heartbeat.interval.ms r int 5000 1..
group.consumer.max.assignment.interval.ms r int 15000 0..
group.consumer.max.heartbeat.interval.ms r int 15000 1..
group.consumer.max.session.timeout.ms r int 60000 1..
group.consumer.max.size r int 2147483647 1..
group.consumer.migration.policy r string bidirectional
group.consumer.min.assignment.interval.ms r int 0 0..
group.consumer.min.heartbeat.interval.ms r int 5000 1..
group.consumer.min.session.timeout.ms r int 45000 1..
group.consumer.session.timeout.ms r int 45000 1..
group.coordinator.append.linger.ms r int -1 -1..
group.coordinator.background.threads r int 2 1..
group.coordinator.cached.buffer.max.bytes c int 1048588 524288..
group.coordinator.rebalance.protocols r list classic,consumer,streams classic|consumer|share|streams
group.coordinator.threads r int 4 1..
group.initial.rebalance.delay.ms r int 3000
group.max.session.timeout.ms r int 1800000
group.max.size r int 2147483647 1..
group.min.session.timeout.ms r int 6000
group.share.assignment.interval.ms c int 1000 0..
group.share.assignors r list simple
group.share.delivery.count.limit r int 5 2..10
group.share.heartbeat.interval.ms r int 5000 1..
group.share.max.assignment.interval.ms r int 15000 0..
group.share.max.delivery.count.limit r int 10 5..25
group.share.max.heartbeat.interval.ms r int 15000 1..
group.share.max.partition.max.record.locks r int 4000 2000..10000
group.share.max.record.lock.duration.ms r int 60000 30000..3600000
group.share.max.session.timeout.ms r int 60000 1..
group.share.max.share.sessions r int 2000 1..
group.share.max.size r int 200 1..1000
group.share.min.assignment.interval.ms r int 0 0..
group.share.min.delivery.count.limit r int 2 2..5
group.share.min.heartbeat.interval.ms r int 5000 1..
group.share.min.partition.max.record.locks r int 100 100..2000
group.share.min.record.lock.duration.ms r int 15000 1000..30000
group.share.min.session.timeout.ms r int 45000 1..
group.share.partition.max.record.locks r int 2000 100..10000
group.share.record.lock.duration.ms r int 30000 1000..3600000
group.share.session.timeout.ms r int 45000 1..
group.streams.assignment.interval.ms c int 1000 0..
group.streams.assignors r list sticky
group.streams.heartbeat.interval.ms r int 5000 1..
group.streams.initial.rebalance.delay.ms r int 3000 0..
group.streams.max.assignment.interval.ms r int 15000 0..
group.streams.max.heartbeat.interval.ms r int 15000 1..
group.streams.max.session.timeout.ms r int 60000 1..
group.streams.max.size r int 2147483647 1..
group.streams.max.standby.replicas r int 2 0..
group.streams.min.assignment.interval.ms r int 0 0..
group.streams.min.heartbeat.interval.ms r int 5000 1..
group.streams.min.session.timeout.ms r int 45000 1..
group.streams.num.standby.replicas r int 0 0..
group.streams.rack.aware.assignment.tags r list ""
group.streams.session.timeout.ms r int 45000 1..
group.streams.topology.description.plugin.class r class -
initial.broker.registration.timeout.ms r int 60000
inter.broker.listener.name r string -
kafka.metrics.polling.interval.secs r int 10 1..
kafka.metrics.reporters r list ""
leader.imbalance.check.interval.seconds r long 300 1..
listener.security.protocol.map b string \
SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT
listeners b list PLAINTEXT://:9092
log.cleaner.backoff.ms c long 15000 0..
log.cleaner.dedupe.buffer.size c long 134217728
log.cleaner.delete.retention.ms c long 86400000 0..
log.cleaner.enable r boolean true
log.cleaner.io.buffer.load.factor c double 0.9
log.cleaner.io.buffer.size c int 524288 0..
log.cleaner.io.max.bytes.per.second c double 1.7976931348623157E308
log.cleaner.max.compaction.lag.ms c long 9223372036854775807 1..
log.cleaner.min.cleanable.ratio c double 0.5 0..1
log.cleaner.min.compaction.lag.ms c long 0 0..
log.cleaner.threads c int 1 0..
log.cleanup.policy c list delete compact|delete
log.dir r list /tmp/kafka-logs
log.dir.failure.timeout.ms r long 30000 1..
log.dirs r list -
log.flush.interval.messages c long 9223372036854775807 1..
log.flush.interval.ms c long -
log.flush.offset.checkpoint.interval.ms r int 60000 0..
log.flush.scheduler.interval.ms r long 9223372036854775807
log.flush.start.offset.checkpoint.interval.ms r int 60000 0..
log.index.interval.bytes c int 4096 0..
log.index.size.max.bytes c int 10485760 4..
log.local.retention.bytes c long -2 -2..
log.local.retention.ms c long -2 -2..
log.message.timestamp.after.max.ms c long 3600000 0..
log.message.timestamp.before.max.ms c long 9223372036854775807 0..
log.message.timestamp.type c string CreateTime CreateTime|LogAppendTime
log.preallocate c boolean false
log.remote.copy.lag.bytes c long -1 -1..
log.remote.copy.lag.ms c long 0 -1..
log.retention.bytes c long -1
log.retention.check.interval.ms r long 300000 1..
log.retention.hours r int 168
log.retention.minutes r int -
log.retention.ms c long -
log.roll.hours r int 168 1..
log.roll.jitter.hours r int 0 0..
log.roll.jitter.ms c long -
log.roll.ms c long -
log.segment.bytes c int 1073741824 1048576..
log.segment.delete.delay.ms c long 60000 0..
max.connection.creation.rate c int 2147483647 0..
max.connections c int 2147483647 0..
max.connections.per.ip c int 2147483647 0..
max.connections.per.ip.overrides c string ""
max.decompressed.message.bytes c int 2147483639 1..2147483639
max.incremental.fetch.session.cache.slots r int 1000 0..
max.request.partition.size.limit r int 2000 1..
message.max.bytes c int 1048588 0..
metadata.log.dir r string -
metadata.log.max.record.bytes.between.snapshots r long 20971520 1..
metadata.log.max.snapshot.interval.ms r long 3600000 0..
metadata.log.segment.bytes r int 1073741824 8388608..
metadata.log.segment.ms r long 604800000
metadata.max.idle.interval.ms r int 500 0..
metadata.max.retention.bytes r long 104857600
metadata.max.retention.ms r long 604800000
metric.reporters c list org.apache.kafka.common.metrics.JmxReporter
metrics.num.samples r int 2 1..
metrics.recording.level r string INFO
metrics.sample.window.ms r long 30000 1..
min.insync.replicas c int 1 1..
node.id r int - 0..
num.io.threads c int 8 1..
num.network.threads c int 3 1..
num.partitions r int 1 1..
num.recovery.threads.per.data.dir c int 2 1..
num.replica.alter.log.dirs.threads r int -
num.replica.fetchers c int 1 1..
offset.metadata.max.bytes r int 4096
offsets.commit.timeout.ms r int 5000 1..
offsets.load.buffer.size r int 5242880 1..
offsets.retention.check.interval.ms r long 600000 1..
offsets.retention.minutes r int 10080 1..
offsets.topic.compression.codec r int 0
offsets.topic.num.partitions r int 50 1..
offsets.topic.replication.factor r short 3 1..
offsets.topic.segment.bytes r int 104857600 1..
principal.builder.class b class \
org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder
process.roles r list - broker|controller
producer.id.expiration.ms c int 86400000 1..
producer.purgatory.purge.interval.requests r int 1000
queued.max.request.bytes r long -1
queued.max.requests r int 500 1..
quota.window.num r int 11 1..
quota.window.size.seconds r int 1 1..
remote.fetch.max.wait.ms c int 500 1..
remote.list.offsets.request.timeout.ms c long 30000 1..
remote.log.index.file.cache.total.size.bytes c long 1073741824 1..
remote.log.manager.copier.thread.pool.size c int 10 1..
remote.log.manager.copy.max.bytes.per.second c long 9223372036854775807 1..
remote.log.manager.copy.quota.window.num r int 11 1..
remote.log.manager.copy.quota.window.size.seconds r int 1 1..
remote.log.manager.expiration.thread.pool.size c int 10 1..
remote.log.manager.fetch.max.bytes.per.second c long 9223372036854775807 1..
remote.log.manager.fetch.quota.window.num r int 11 1..
remote.log.manager.fetch.quota.window.size.seconds r int 1 1..
remote.log.manager.follower.thread.pool.size c int 2 1..
remote.log.manager.task.interval.ms r long 30000 1..
remote.log.manager.thread.pool.size r int 2 1..
remote.log.metadata.custom.metadata.max.bytes r int 128 0..
remote.log.metadata.manager.class.name r string \
org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager
remote.log.metadata.manager.class.path r string -
remote.log.metadata.manager.impl.prefix r string rlmm.config.
remote.log.metadata.manager.listener.name r string -
remote.log.reader.max.pending.tasks r int 100 1..
remote.log.reader.threads c int 10 1..
remote.log.storage.manager.class.name r string -
remote.log.storage.manager.class.path r string -
remote.log.storage.manager.impl.prefix r string rsm.config.
remote.log.storage.system.enable r boolean false
replica.fetch.backoff.ms r int 1000 0..
replica.fetch.max.bytes r int 1048576 0..
replica.fetch.min.bytes r int 1
replica.fetch.response.max.bytes r int 10485760 0..
replica.fetch.wait.max.ms r int 500
replica.high.watermark.checkpoint.interval.ms r long 5000
replica.lag.time.max.ms r long 30000
replica.selector.class r string -
replica.socket.receive.buffer.bytes r int 65536
replica.socket.timeout.ms r int 30000
replication.quota.window.num r int 11 1..
replication.quota.window.size.seconds r int 1 1..
request.timeout.ms r int 30000
sasl.client.callback.handler.class r class -
sasl.enabled.mechanisms b list GSSAPI
sasl.jaas.config b password -
sasl.kerberos.kinit.cmd b string /usr/bin/kinit
sasl.kerberos.min.time.before.relogin b long 60000
sasl.kerberos.principal.to.local.rules b list DEFAULT
sasl.kerberos.service.name b string -
sasl.kerberos.ticket.renew.jitter b double 0.05
sasl.kerberos.ticket.renew.window.factor b double 0.8
sasl.login.callback.handler.class r class -
sasl.login.class r class -
sasl.login.connect.timeout.ms r int -
sasl.login.read.timeout.ms r int -
sasl.login.refresh.buffer.seconds b short 300
sasl.login.refresh.min.period.seconds b short 60
sasl.login.refresh.window.factor b double 0.8
sasl.login.refresh.window.jitter b double 0.05
sasl.login.retry.backoff.max.ms r long 10000
sasl.login.retry.backoff.ms r long 100
sasl.mechanism.controller.protocol r string GSSAPI
sasl.mechanism.inter.broker.protocol b string GSSAPI
sasl.oauthbearer.allow.unverified.audience r boolean false
sasl.oauthbearer.allow.unverified.issuer r boolean false
sasl.oauthbearer.assertion.algorithm r string RS256
sasl.oauthbearer.assertion.claim.aud r string -
sasl.oauthbearer.assertion.claim.exp.seconds r int 300 0..86400
sasl.oauthbearer.assertion.claim.iss r string -
sasl.oauthbearer.assertion.claim.jti.include r boolean false
sasl.oauthbearer.assertion.claim.nbf.seconds r int 60 0..3600
sasl.oauthbearer.assertion.claim.sub r string -
sasl.oauthbearer.assertion.file r string -
sasl.oauthbearer.assertion.private.key.file r string -
sasl.oauthbearer.assertion.private.key.passphrase r password -
sasl.oauthbearer.assertion.template.file r string -
sasl.oauthbearer.client.credentials.client.id r string -
sasl.oauthbearer.client.credentials.client.secret r password -
sasl.oauthbearer.clock.skew.seconds r int 30
sasl.oauthbearer.expected.audience r list ""
sasl.oauthbearer.expected.issuer r string -
sasl.oauthbearer.jwks.endpoint.refresh.ms r long 3600000
sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms r long 10000
sasl.oauthbearer.jwks.endpoint.retry.backoff.ms r long 100
sasl.oauthbearer.jwks.endpoint.url r string -
sasl.oauthbearer.jwt.retriever.class r class \
org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever
sasl.oauthbearer.jwt.validator.class r class \
org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator
sasl.oauthbearer.scope r string -
sasl.oauthbearer.scope.claim.name r string scope
sasl.oauthbearer.sub.claim.name r string sub
sasl.oauthbearer.token.endpoint.url r string -
sasl.server.callback.handler.class r class -
sasl.server.max.receive.size r int 524288
security.inter.broker.protocol r string PLAINTEXT PLAINTEXT|SASL_PLAINTEXT|SASL_SSL|SSL
security.providers r string -
share.coordinator.append.linger.ms r int -1 -1..
share.coordinator.cached.buffer.max.bytes c int 1048588 524288..
share.coordinator.load.buffer.size r int 5242880 1..
share.coordinator.snapshot.update.records.per.snapshot r int 500 0..500
share.coordinator.state.topic.compression.codec r int 0
share.coordinator.state.topic.min.isr r short 2 1..
share.coordinator.state.topic.num.partitions r int 50 1..
share.coordinator.state.topic.replication.factor r short 3 1..
share.coordinator.state.topic.segment.bytes r int 104857600 1..
share.coordinator.threads r int 1 1..
share.coordinator.write.timeout.ms r int 5000 1..
share.fetch.purgatory.purge.interval.requests r int 1000
socket.connection.setup.timeout.max.ms r long 30000
socket.connection.setup.timeout.ms r long 10000
socket.listen.backlog.size r int 50 1..
socket.receive.buffer.bytes r int 102400
socket.request.max.bytes r int 104857600 1..
socket.send.buffer.bytes r int 102400
ssl.allow.dn.changes r boolean false
ssl.allow.san.changes r boolean false
ssl.cipher.suites b list ""
ssl.client.auth b string none none|requested|required
ssl.enabled.protocols b list TLSv1.2,TLSv1.3
ssl.endpoint.identification.algorithm b string https
ssl.engine.factory.class b class -
ssl.key.password b password -
ssl.keymanager.algorithm b string SunX509
ssl.keystore.certificate.chain b password -
ssl.keystore.key b password -
ssl.keystore.location b string -
ssl.keystore.password b password -
ssl.keystore.type b string JKS
ssl.principal.mapping.rules r string DEFAULT
ssl.protocol b string TLSv1.3
ssl.provider b string -
ssl.secure.random.implementation b string -
ssl.trustmanager.algorithm b string PKIX
ssl.truststore.certificates b password -
ssl.truststore.location b string -
ssl.truststore.password b password -
ssl.truststore.type b string JKS
telemetry.max.bytes r int 1048576 1..
transaction.abort.timed.out.transaction.cleanup.interval.ms r int 10000 1..
transaction.max.timeout.ms r int 900000 1..
transaction.partition.verification.enable c boolean true
transaction.remove.expired.transaction.cleanup.interval.ms r int 3600000 1..
transaction.state.log.load.buffer.size r int 5242880 1..
transaction.state.log.min.isr r int 2 1..
transaction.state.log.num.partitions r int 50 1..
transaction.state.log.replication.factor r short 3 1..
transaction.state.log.segment.bytes r int 104857600 1..
transaction.two.phase.commit.enable r boolean false
transactional.id.expiration.ms r int 604800000 1..
unclean.leader.election.enable c boolean false
"""
