# Made by scripts/monitoring.py.
variable "application" {
  type        = string
  description = "The application's name, which is the namespace."
}

variable "stream" {
  type        = string
  description = "The stream that the producer writes to."
}

variable "alarm_topic" {
  type        = string
  description = "The ARN of the SNS topic that is told."
}

resource "aws_cloudwatch_metric_alarm" "lag_uses_retention" {
  alarm_name          = "${var.application}-lag_uses_retention"
  alarm_description   = "a quarter of the stream's retention is used by records that are not settled"
  namespace           = var.application
  metric_name         = "shardway.consumer.retention.used"
  statistic           = "Maximum"
  period              = 60
  evaluation_periods  = 3
  datapoints_to_alarm = 3
  threshold           = 0.25
  comparison_operator = "GreaterThanThreshold"
  treat_missing_data  = "notBreaching"
  alarm_actions       = [var.alarm_topic]
  ok_actions          = [var.alarm_topic]
}

resource "aws_cloudwatch_metric_alarm" "lag_uses_half_of_retention" {
  alarm_name          = "${var.application}-lag_uses_half_of_retention"
  alarm_description   = "half of the stream's retention is used by records that are not settled"
  namespace           = var.application
  metric_name         = "shardway.consumer.retention.used"
  statistic           = "Maximum"
  period              = 60
  evaluation_periods  = 2
  datapoints_to_alarm = 2
  threshold           = 0.5
  comparison_operator = "GreaterThanThreshold"
  treat_missing_data  = "notBreaching"
  alarm_actions       = [var.alarm_topic]
  ok_actions          = [var.alarm_topic]
}

resource "aws_cloudwatch_metric_alarm" "loss_foreseen" {
  alarm_name          = "${var.application}-loss_foreseen"
  alarm_description   = "as lag grows now, records are lost within a day"
  metric_query {
    id = "used"
    metric {
      namespace           = var.application
      metric_name         = "shardway.consumer.retention.used"
      stat                = "Maximum"
      period              = 300
    }
  }
  metric_query {
    id          = "told"
    expression  = "IF(used > 0.05, used + 86400 * RATE(used), 0)"
    label       = "LossForeseen"
    return_data = true
  }
  evaluation_periods  = 3
  datapoints_to_alarm = 3
  threshold           = 1
  comparison_operator = "GreaterThanThreshold"
  treat_missing_data  = "notBreaching"
  alarm_actions       = [var.alarm_topic]
  ok_actions          = [var.alarm_topic]
}

resource "aws_cloudwatch_metric_alarm" "no_numbers" {
  alarm_name          = "${var.application}-no_numbers"
  alarm_description   = "no worker tells numbers: none runs, or their loops hang"
  namespace           = var.application
  metric_name         = "CurrentLeases"
  dimensions          = { Operation = "RenewAllLeases" }
  statistic           = "SampleCount"
  period              = 60
  evaluation_periods  = 3
  datapoints_to_alarm = 3
  threshold           = 1
  comparison_operator = "LessThanThreshold"
  treat_missing_data  = "breaching"
  alarm_actions       = [var.alarm_topic]
  ok_actions          = [var.alarm_topic]
}

resource "aws_cloudwatch_metric_alarm" "handlers_fail" {
  alarm_name          = "${var.application}-handlers_fail"
  alarm_description   = "handlers have failed in each of 5 minutes"
  namespace           = var.application
  metric_name         = "RecordsFailedProcessing"
  dimensions          = { Operation = "ProcessTask" }
  statistic           = "Sum"
  period              = 60
  evaluation_periods  = 5
  datapoints_to_alarm = 5
  threshold           = 0
  comparison_operator = "GreaterThanThreshold"
  treat_missing_data  = "notBreaching"
  alarm_actions       = [var.alarm_topic]
  ok_actions          = [var.alarm_topic]
}

resource "aws_cloudwatch_metric_alarm" "dead_letters" {
  alarm_name          = "${var.application}-dead_letters"
  alarm_description   = "records were given up and written as dead letters"
  namespace           = var.application
  metric_name         = "shardway.consumer.dead_lettered"
  statistic           = "Sum"
  period              = 60
  evaluation_periods  = 1
  datapoints_to_alarm = 1
  threshold           = 0
  comparison_operator = "GreaterThanThreshold"
  treat_missing_data  = "notBreaching"
  alarm_actions       = [var.alarm_topic]
  ok_actions          = [var.alarm_topic]
}

resource "aws_cloudwatch_metric_alarm" "records_lost" {
  alarm_name          = "${var.application}-records_lost"
  alarm_description   = "a checkpoint was older than the retention: records may be lost"
  namespace           = var.application
  metric_name         = "shardway.consumer.gaps"
  statistic           = "Sum"
  period              = 60
  evaluation_periods  = 1
  datapoints_to_alarm = 1
  threshold           = 0
  comparison_operator = "GreaterThanThreshold"
  treat_missing_data  = "notBreaching"
  alarm_actions       = [var.alarm_topic]
  ok_actions          = [var.alarm_topic]
}

resource "aws_cloudwatch_metric_alarm" "leases_without_owner" {
  alarm_name          = "${var.application}-leases_without_owner"
  alarm_description   = "leases have had no worker that lives for 5 minutes: nothing reads their shards"
  namespace           = var.application
  metric_name         = "shardway.leases.free"
  statistic           = "Maximum"
  period              = 60
  evaluation_periods  = 5
  datapoints_to_alarm = 5
  threshold           = 0
  comparison_operator = "GreaterThanThreshold"
  treat_missing_data  = "notBreaching"
  alarm_actions       = [var.alarm_topic]
  ok_actions          = [var.alarm_topic]
}

resource "aws_cloudwatch_metric_alarm" "leases_lost" {
  alarm_name          = "${var.application}-leases_lost"
  alarm_description   = "leases were lost in each of 5 minutes"
  namespace           = var.application
  metric_name         = "LostLeases"
  dimensions          = { Operation = "RenewAllLeases" }
  statistic           = "Sum"
  period              = 60
  evaluation_periods  = 5
  datapoints_to_alarm = 5
  threshold           = 0
  comparison_operator = "GreaterThanThreshold"
  treat_missing_data  = "notBreaching"
  alarm_actions       = [var.alarm_topic]
  ok_actions          = [var.alarm_topic]
}

resource "aws_cloudwatch_metric_alarm" "lease_table_fails" {
  alarm_name          = "${var.application}-lease_table_fails"
  alarm_description   = "calls to the lease table have failed in each of 5 minutes: shards are let go"
  namespace           = var.application
  metric_name         = "shardway.table.failures"
  statistic           = "Sum"
  period              = 60
  evaluation_periods  = 5
  datapoints_to_alarm = 5
  threshold           = 0
  comparison_operator = "GreaterThanThreshold"
  treat_missing_data  = "notBreaching"
  alarm_actions       = [var.alarm_topic]
  ok_actions          = [var.alarm_topic]
}

resource "aws_cloudwatch_metric_alarm" "reads_refused" {
  alarm_name          = "${var.application}-reads_refused"
  alarm_description   = "shards have refused reads for 15 minutes: others read them too"
  namespace           = var.application
  metric_name         = "shardway.consumer.fetches_refused"
  statistic           = "Sum"
  period              = 60
  evaluation_periods  = 15
  datapoints_to_alarm = 15
  threshold           = 6
  comparison_operator = "GreaterThanThreshold"
  treat_missing_data  = "notBreaching"
  alarm_actions       = [var.alarm_topic]
  ok_actions          = [var.alarm_topic]
}

resource "aws_cloudwatch_metric_alarm" "puts_refused" {
  alarm_name          = "${var.application}-puts_refused"
  alarm_description   = "shards have refused records for 15 minutes"
  namespace           = "KinesisProducerLibrary"
  metric_name         = "shardway.producer.refused"
  dimensions          = { StreamName = var.stream }
  statistic           = "Sum"
  period              = 60
  evaluation_periods  = 15
  datapoints_to_alarm = 15
  threshold           = 60
  comparison_operator = "GreaterThanThreshold"
  treat_missing_data  = "notBreaching"
  alarm_actions       = [var.alarm_topic]
  ok_actions          = [var.alarm_topic]
}
