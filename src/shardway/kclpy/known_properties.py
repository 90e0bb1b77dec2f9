"""Say what the properties of a MultiLangDaemon mean here: something, or nothing, with a reason."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


READ = (
    "applicationName", "callProcessRecordsEvenForEmptyRecordList", "cloudWatchEndpoint", "dynamoDBEndpoint",
    "executableName", "failoverTimeMillis", "fanoutConfig.consumerName", "gracefulLeaseHandoffTimeoutMillis",
    "idleTimeBetweenReadsInMillis", "initialPositionInStream", "initialPositionInStreamExtended", "kinesisEndpoint",
    "leaseTableName", "logWarningForTaskAfterMillis", "maxLeasesForWorker", "maxRecords", "metricsEnabledDimensions",
    "metricsLevel", "regionName",
    "retrievalMode", "shutdownGraceMillis", "streamArn", "streamName", "tableName", "taskBackoffTimeMillis",
    "timeoutInSeconds", "timestampAtInitialPositionInStream", "workerId",
)  # fmt: skip
"""The properties that mean something here."""
IGNORED = {
    "executablename": "the program is named on the command line",
    "awscredentialsprovider": "credentials are found as the AWS SDK for Python finds them",
    "awscredentialsproviderdynamodb": "credentials are found as the AWS SDK for Python finds them",
    "awscredentialsprovidercloudwatch": "credentials are found as the AWS SDK for Python finds them",
    "fanoutconfig.consumerarn": "a consumer is registered by its name, fanoutConfig.consumerName",
}
"""The properties that are passed over, each with the reason."""
WITHOUT_MEANING = frozenset(
    name.lower()
    for name in (
        "allowThroughputOvershoot", "billingMode", "cleanupLeasesUponShardCompletion", "clientVersionConfig",
        "commonClientConfig", "dampeningPercentage", "disableWorkerMetrics",
        "ignoreUnexpectedChildShards", "initialLeaseTableReadCapacity", "initialLeaseTableWriteCapacity",
        "inMemoryWorkerMetricsCaptureFrequencyMillis", "isGracefulLeaseHandoffEnabled",
        "leaseAssignmentIntervalMillis", "leaseAssignmentStrategy", "leasesRecoveryAuditorExecutionFrequencyMillis",
        "leaseTableDeletionProtectionEnabled", "leaseTablePitrEnabled", "listShardsBackoffTimeInMillis",
        "maxActiveThreads", "maxCacheMissesBeforeReload", "maxGetRecordsThreadPool", "maxInitializationAttempts",
        "maxLeaseRenewalThreads", "maxLeasesToStealAtOneTime", "maxListShardsRetryAttempts",
        "maxThroughputPerHostKBps", "metricsBufferTimeMillis",
        "metricsMaxQueueSize", "noOfPersistedMetricsPerWorkerMetrics", "parentShardPollIntervalMillis",
        "processingLanguage", "reBalanceThresholdPercentage", "retryGetRecordsInSeconds",
        "schedulerInitializationBackoffTimeMillis", "shardConsumerDispatchPollIntervalMillis",
        "shardPrioritizationStrategy", "shardSyncIntervalMillis",
        "skipShardSyncAtWorkerInitializationIfLeasesExist", "staleWorkerMetricsEntryCleanupDuration",
        "validateSequenceNumberBeforeCheckpointing", "varianceBalancingFrequency", "workerMetricsEMAAlpha",
        "workerMetricsReporterFreqInMillis",
    )
)  # fmt: skip
"""Properties of parts that are not here, or that work otherwise."""
PREFIXES_WITHOUT_MEANING = ("coordinatorstate", "workermetrics", "metrics", "fanoutconfig.", "pollingconfig.")


def remarks_on(properties: Mapping[str, str]) -> tuple[str, ...]:
    """Return a line for each property, or group of them, that is passed over."""
    known = {name.lower() for name in READ}
    lines, idle = [], []
    for name in properties:
        low = name.lower()
        if low in IGNORED:
            lines.append(f"{name} is not used: {IGNORED[low]}")
        elif low in WITHOUT_MEANING or (low not in known and low.startswith(PREFIXES_WITHOUT_MEANING)):
            idle.append(name)
        elif low not in known:
            near = difflib.get_close_matches(low, known, n=1)
            hint = f": is {next(one for one in READ if one.lower() == near[0])} meant?" if near else ""
            lines.append(f"{name} is not known, and not used{hint}")
    if idle:
        lines.append(f"without a meaning here: {', '.join(idle)}")
    return tuple(lines)
