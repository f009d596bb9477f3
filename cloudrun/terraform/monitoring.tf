resource "google_monitoring_alert_policy" "alert" {
  for_each = local.alerts

  display_name          = "Holdfast: ${each.value.summary}"
  severity              = each.value.severity
  combiner              = "OR"
  notification_channels = var.notification_channels

  conditions {
    display_name = each.key

    condition_prometheus_query_language {
      query               = each.value.query
      duration            = each.value.for
      evaluation_interval = "60s"
      # A series that was never written is not an error: for instance, no call has
      # been refused yet.
      disable_metric_validation = true
    }
  }

  # The alert contains the whole playbook.
  documentation {
    subject   = "Holdfast: ${each.value.summary}"
    mime_type = "text/markdown"
    content   = file("${path.module}/../playbooks/${each.value.playbook}")
  }

  alert_strategy {
    auto_close = "3600s"
  }

  depends_on = [google_project_service.api]
}

resource "google_monitoring_dashboard" "holdfast" {
  dashboard_json = file("${path.module}/../dashboards/cloud-monitoring.json")

  depends_on = [google_project_service.api]
}
