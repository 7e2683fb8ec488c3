//! The kinds of fence agents and resources, with what a person has to say of each. What is not here keeps its default, or
//! is given by its name and checked like everything else.

/// One kind: what it is called, and its keys in the order of asking.
#[derive(Debug)]
pub struct Kind {
    pub word: &'static str,
    /// In one line, for whoever chooses.
    pub what: &'static str,
    /// What its parts are called when nobody names them.
    pub prefix: &'static str,
    pub keys: &'static [Key],
}

/// One key of a kind.
#[derive(Debug)]
pub struct Key {
    pub name: &'static str,
    /// Stands above it in the file, and above its question.
    pub about: &'static str,
    pub shape: Shape,
    pub usual: Usual,
    /// Has a value of its own for each node.
    pub each: bool,
}

/// How a value is written in TOML.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    Text,
    /// A list of words, such as a command and its arguments.
    Words,
    /// A number, true or false.
    Bare,
}

/// What stands for a value that nobody gave. In it `{etc}` is the folder of the configuration, `{node}` the name of the
/// node, `{address}` its address on the first link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Usual {
    /// Nothing: it must be given.
    Missing,
    /// Asked for, and offered.
    Offered(&'static str),
    /// Written without a question.
    Written(&'static str),
    /// The value of this key at the other node.
    Other(&'static str),
}

use Shape::{Bare, Text, Words};
use Usual::{Missing, Offered, Other, Written};

const fn both(name: &'static str, shape: Shape, usual: Usual, about: &'static str) -> Key {
    Key { name, about, shape, usual, each: false }
}

const fn each(name: &'static str, usual: Usual, about: &'static str) -> Key {
    Key { name, about, shape: Text, usual, each: true }
}

const PASSWORD: Key = each(
    "password_file",
    Offered("{etc}/bmc-{node}"),
    "A file of mode 0600 that holds nothing but the password. Never the password itself.",
);
const USER: Key = both("user", Text, Offered("fence"), "A user of the BMC for this alone, that may switch the power.");
const SECONDS: Key =
    both("timeout", Text, Written("20s"), "Limit of one whole attempt, with the reading that verifies it.");
const SETTLE: Key =
    both("settle", Text, Written("60s"), "How long the cloud may sit on an order that it has accepted.");
const MINUTES: Key = both("timeout", Text, Written("120s"), "Limit of one whole attempt: a cloud takes its time.");
const REGION: Key = both("region", Text, Missing, "The region of both instances.");
const INSTANCE: Key = each("instance", Missing, "The id of the node's instance.");
const TWIN: Key = each("other_instance", Other("instance"), "The one that shoots: not while it goes down itself.");
const ROLE: Key = both("metadata", Bare, Written("true"), "Signs with the keys of this instance's role.");
const KEYSTONE: Key = both("auth_url", Text, Missing, "Keystone, such as https://cloud.example.net:5000/v3.");
const CREDENTIAL: Key =
    both("application_credential_id", Text, Missing, "Of an application credential that may do this and nothing else.");
const CREDENTIAL_SECRET: Key = both(
    "application_credential_secret_file",
    Text,
    Offered("{etc}/openstack"),
    "A file of mode 0600 that holds nothing but its secret.",
);
const SERVER: Key = each("server", Missing, "The id of the node's server, not its name.");
const GATE: [Key; 4] = [
    both("server", Text, Missing, "The storage server, on which `leasehold gate` is set up."),
    both(
        "key_file",
        Text,
        Offered("{etc}/gate-key"),
        "The ssh key for it, mode 0600, tied to `leasehold gate serve` there.",
    ),
    both(
        "known_hosts",
        Text,
        Offered("{etc}/gate-known-hosts"),
        "The ssh host key of the storage server, in known_hosts form.",
    ),
    both("gate", Text, Missing, "Its name in the storage server's gate.toml."),
];

pub static AGENTS: [Kind; 12] = [
    Kind {
        word: "ipmi",
        what: "a server's BMC, by IPMI 2.0",
        prefix: "bmc",
        keys: &[
            each(
                "address",
                Missing,
                "Of the node's BMC, reached from the other node; never an address of the node itself.",
            ),
            USER,
            PASSWORD,
            both("privilege", Text, Written("operator"), "The least that may switch the power."),
            both("timeout", Text, Written("10s"), "Limit of one whole attempt, with the readings that verify it."),
        ],
    },
    Kind {
        word: "redfish",
        what: "a newer BMC, by HTTPS",
        prefix: "bmc",
        keys: &[
            each("url", Missing, "Of the node's BMC, such as https://203.0.113.11; an address rather than a name."),
            each("system", Offered("1"), "The Id of its system, as /redfish/v1/Systems lists it."),
            USER,
            PASSWORD,
            both(
                "ca_file",
                Text,
                Offered("{etc}/bmc-ca.pem"),
                "The authority that signed the certificates of the BMCs.",
            ),
            SECONDS,
        ],
    },
    Kind {
        word: "fence-agent",
        what: "a program of ClusterLabs, such as fence_apc; its options as options.NAME=VALUE",
        prefix: "outlet",
        keys: &[
            both("program", Text, Missing, "The program, in /usr/sbin or with its whole path."),
            each("options.plug", Missing, "Which outlet, port or machine the node is."),
            both("options.ip", Text, Missing, "The address of the device."),
            both("options.username", Text, Offered("fence"), "A user of the device that may switch."),
            both(
                "secret_options.password",
                Text,
                Offered("{etc}/fence-password"),
                "A file of mode 0600 with the password.",
            ),
            both("timeout", Text, Written("30s"), "Limit of one whole attempt; its `off` gets half of it."),
        ],
    },
    Kind {
        word: "exec",
        what: "a program of your own; what it needs as settings.NAME=VALUE",
        prefix: "device",
        keys: &[
            both("program", Text, Missing, "It speaks the contract of leasehold-fence-exec(7)."),
            both(
                "scope",
                Text,
                Offered("node"),
                "\"node\": after an off nothing on the node acts any more. \"resource\": it still runs.",
            ),
            SECONDS,
        ],
    },
    Kind {
        word: "ec2-power",
        what: "an EC2 instance, stopped",
        prefix: "ec2",
        keys: &[REGION, INSTANCE, TWIN, ROLE, MINUTES, SETTLE],
    },
    Kind {
        word: "openstack-power",
        what: "an OpenStack server, stopped",
        prefix: "cloud",
        keys: &[KEYSTONE, CREDENTIAL, CREDENTIAL_SECRET, SERVER, SECONDS],
    },
    Kind { word: "nfs-export", what: "the access to an NFS export", prefix: "export", keys: &GATE },
    Kind { word: "iscsi-acl", what: "the access to an iSCSI target", prefix: "disk", keys: &GATE },
    Kind {
        word: "scsi-pr",
        what: "the access to shared disks, by their reservations",
        prefix: "disk",
        keys: &[both("devices", Words, Missing, "Whole disks, the same on both nodes and in the same order.")],
    },
    Kind {
        word: "ec2-volume",
        what: "an EBS volume, detached (beside ec2-power)",
        prefix: "volume",
        keys: &[
            REGION,
            both("volume", Text, Missing, "The volume that moves."),
            INSTANCE,
            TWIN,
            both("device", Text, Offered("/dev/sdf"), "Where it is attached."),
            ROLE,
            MINUTES,
            SETTLE,
        ],
    },
    Kind {
        word: "openstack-volume",
        what: "a Cinder volume, detached (beside openstack-power)",
        prefix: "data",
        keys: &[
            KEYSTONE,
            CREDENTIAL,
            CREDENTIAL_SECRET,
            SERVER,
            both("volume", Text, Missing, "The id of the volume that moves."),
            SECONDS,
        ],
    },
    Kind {
        word: "manual",
        what: "a person, behind all others",
        prefix: "person",
        keys: &[both("level", Bare, Written("10"), "After every other agent against this node.")],
    },
];

pub static RESOURCES: [Kind; 5] = [
    Kind {
        word: "unit",
        what: "a systemd unit",
        prefix: "unit",
        keys: &[both("unit", Text, Missing, "With its suffix. It must not be enabled: leasehold alone starts it.")],
    },
    Kind {
        word: "exec",
        what: "a program",
        prefix: "service",
        keys: &[both("start", Words, Missing, "Program and arguments, without a shell. It stays in the foreground.")],
    },
    Kind {
        word: "address",
        what: "an IP address",
        prefix: "address",
        keys: &[
            both(
                "address",
                Text,
                Missing,
                "With the prefix of its subnet, such as 192.0.2.50/24. No machine has it yet.",
            ),
            each("interface", Missing, "The interface of each node that gets it."),
        ],
    },
    Kind {
        word: "mount",
        what: "a file system",
        prefix: "data",
        keys: &[
            both("what", Text, Missing, "The device, by a name that is the same on both nodes; or host:/path of NFS."),
            both("where", Text, Missing, "Where it is mounted."),
            both("type", Text, Offered("ext4"), "Its type, as mount(8) has it."),
        ],
    },
    Kind {
        word: "postgres",
        what: "one half of a streaming-replication pair",
        prefix: "db",
        keys: &[
            both("data_directory", Text, Offered("/var/lib/postgresql/15/main"), "Each node's own replica."),
            each(
                "primary_conninfo",
                Offered("host={address} port=5432"),
                "How a node's server is reached from the other node.",
            ),
            both("replication_user", Text, Offered("replicator"), "The role that replicates."),
            both(
                "passfile",
                Text,
                Offered("/var/lib/postgresql/.pgpass-leasehold"),
                "Where its password lies on each node, as a .pgpass file.",
            ),
        ],
    },
];

/// What `--fence none` and `fence = "confirm-only"` are called here.
pub const NO_AGENT: &str = "none";
