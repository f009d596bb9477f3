output "url" {
  description = "The URL of the API."
  value       = google_cloud_run_v2_service.api.uri
}

output "connections" {
  description = "The database connections that the programs can need, including rollouts."
  value       = local.connections_most
}
