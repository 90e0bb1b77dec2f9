# Made by scripts/monitoring.py.
variable "application" {
  type        = string
  description = "The application's name, which is the namespace."
}

variable "alarm_topic" {
  type        = string
  description = "The ARN of the SNS topic that is told."
}

variable "retention_hours" {
  type        = number
  description = "The stream's retention."
  default     = 24
}

resource "aws_cloudwatch_metric_alarm" "lag_uses_retention" {
  alarm_name          = "${var.application}-lag_uses_retention"
  alarm_description   = "a quarter of the retention is used by lag, or no worker tells any"
  namespace           = var.application
  metric_name         = "MillisBehindLatest"
  dimensions          = { Operation = "ApplicationTracker" }
  statistic           = "Maximum"
  period              = 60
  evaluation_periods  = 2
  datapoints_to_alarm = 2
  threshold           = var.retention_hours * 900000
  comparison_operator = "GreaterThanThreshold"
  treat_missing_data  = "breaching"
  alarm_actions       = [var.alarm_topic]
  ok_actions          = [var.alarm_topic]
}

resource "aws_cloudwatch_metric_alarm" "lag_uses_half_of_retention" {
  alarm_name          = "${var.application}-lag_uses_half_of_retention"
  alarm_description   = "half of the retention is used by lag, or no worker tells any"
  namespace           = var.application
  metric_name         = "MillisBehindLatest"
  dimensions          = { Operation = "ApplicationTracker" }
  statistic           = "Maximum"
  period              = 60
  evaluation_periods  = 1
  datapoints_to_alarm = 1
  threshold           = var.retention_hours * 1800000
  comparison_operator = "GreaterThanThreshold"
  treat_missing_data  = "breaching"
  alarm_actions       = [var.alarm_topic]
  ok_actions          = [var.alarm_topic]
}

resource "aws_cloudwatch_metric_alarm" "handlers_fail" {
  alarm_name          = "${var.application}-handlers_fail"
  alarm_description   = "handlers have failed for 5 minutes"
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
