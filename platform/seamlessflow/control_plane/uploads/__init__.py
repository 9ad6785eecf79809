"""Files and folders that people upload, for job specs to name as `artifact://<id>`."""
