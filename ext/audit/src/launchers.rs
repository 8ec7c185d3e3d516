//! Keys of a launcher's section: the few that change no result, each group with its reason, and those that choose
//! what runs, where, and on what data.
//!
//! Names are in lower case with `_`. A key that counts devices has a row of its own; any key that is not listed is
//! unknown, and a difference in it may affect the result.

/// Sections of launchers.
pub(crate) const LAUNCHERS: &[&str] = &["launch", "launcher", "sbatch", "slurm", "stool"];

/// Parts of such a section. The keys in them are listed below.
#[rustfmt::skip]
pub(crate) const LAUNCH_PARTS: &[&str] = &[
    "cluster", "container", "docker", "hydra", "job", "k8s", "kubernetes", "logging", "logs", "mail", "network",
    "notifications", "output", "queue", "rdzv", "rendezvous", "resources", "sbatch", "scheduler", "skypilot", "slurm",
    "srun", "ssh", "stool", "submitit", "torchrun",
];

/// Keys that change no result, with the reason. `.*` at the end covers what is below a key.
#[rustfmt::skip]
pub(crate) const LAUNCH_HARMLESS: &[(&str, &[&str])] = &[
    ("who pays for the job, and when it starts", &[
        "account", "array_parallelism", "begin", "billing", "dependency", "hold", "nice", "priority", "qos", "requeue",
        "usage", "wckey",
    ]),
    ("how long it may run or wait", &[
        "deadline", "rdzv_timeout", "signal", "signal_delay_s", "time", "time_limit", "time_min", "timelimit", "timeout",
        "timeout_hour", "timeout_min", "walltime",
    ]),
    ("names and notes", &[
        "annotations.*", "author", "comment", "description", "email", "experiment_name", "job_name", "jobname", "label", "labels.*",
        "mail_type", "mail_type.*", "mail_user", "name", "notes", "owner", "project", "run_name", "tag", "tags", "tags.*", "team", "user", "username",
    ]),
    ("where logs go", &[
        "error", "log_dir", "log_file", "log_level", "log_path", "logdir", "logs_dir", "open_mode", "output", "stderr",
        "stderr_to_stdout", "stdout", "submitit_folder", "tee", "verbose",
    ]),
    ("memory, CPUs and disk of the host", &[
        "cores", "cpu", "cpus", "cpus_per_gpu", "cpus_per_task", "disk_size", "exclusive", "mem", "mem_gb", "mem_per_cpu", "mem_per_gpu", "memory",
        "ncpu", "ncpus", "num_cpus", "tmp",
    ]),
    ("how processes find each other and start again", &[
        "auto_requeue", "main_process_ip", "main_process_port", "master_addr", "master_port", "max_restarts", "max_retries", "monitor_interval",
        "port", "rdzv_backend", "rdzv_endpoint", "rdzv_id", "rdzv_port", "restarts", "retries", "wait_all_nodes",
    ]),
    ("a copy of the same code", &["copy_code", "dirs_exists_ok"]),
];

/// A row of the field table, and the keys of a launcher's section that it covers.
#[rustfmt::skip]
pub(crate) const LAUNCH_CHOICES: &[(&str, &[&str])] = &[
    ("lingua.launch_code.*", &[
        "branch", "chdir", "code_dir", "commit", "cwd", "folder", "git_commit", "git_ref", "repo", "revision", "work_dir", "workdir", "working_dir", "container_workdir",
    ]),
    ("lingua.launch_libraries.*", &[
        "anaconda", "conda", "conda_env", "container", "container_id", "container_image", "container_name", "docker_image", "env_name",
        "image", "image_id", "modules", "modules.*", "python", "singularity_image", "venv", "virtualenv",
    ]),
    ("lingua.launch_data.*", &[
        "bind", "bind.*", "container_mounts", "container_mounts.*", "file_mounts", "file_mounts.*", "mounts", "mounts.*", "volumes", "volumes.*",
    ]),
    ("lingua.launch_hosts.*", &[
        "accelerator", "accelerators", "cloud", "clusters", "cluster_name", "constraint", "constraint.*", "constraints", "constraints.*", "exclude", "exclude.*",
        "exclude_nodes", "exclude_nodes.*", "gpu_type", "host", "hostfile", "hostname", "hosts", "hosts.*", "instance_type", "node_list", "node_list.*",
        "node_selector", "node_selector.*", "nodefile", "nodelist", "nodelist.*", "nodes_exclude", "nodes_exclude.*", "partition", "pool", "prefer", "queue", "queue_name", "region", "reservation",
        "zone",
    ]),
    ("lingua.launch_mode.*", &[
        "backend", "dump_base", "dump_dir", "engine", "extra", "extra.*", "features", "features.*", "kind", "mode", "output_dir", "override", "profile", "role", "save_dir",
        "shared_folder", "start_method", "type",
    ]),
];

/// Keys of a launcher that name the program it starts, or files and shell commands that can set anything.
#[rustfmt::skip]
pub(crate) const LAUNCH_COMMANDS: &[&str] = &[
    "additional_parameters", "app", "args", "arguments", "argv", "cli", "cmd", "command", "commands", "config",
    "config_dir", "config_file", "config_name", "config_path", "configs", "entry_point", "entrypoint", "epilog",
    "exec", "executable", "export", "export_file", "flags", "main", "module", "overrides", "params", "program",
    "prolog", "run", "script", "setup", "task", "wrap",
];
