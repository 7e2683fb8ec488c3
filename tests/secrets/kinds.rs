//! Agents that speak to a service, whose other end repeats all that it is sent; and programs of other people.

use std::sync::Arc;

use rustls::ServerConfig;
use rustls::crypto::ring;

use super::certs::Certs;
use super::http::{Asked, Http, Reply};
use super::redfish_fake::{Act, Fake, machine};
use super::site::{NODES, Site};
use super::{Case, Device, Marker, unique};

const UUIDS: [&str; 2] = ["00112233-4455-6677-8899-aabbccddeea1", "00112233-4455-6677-8899-aabbccddeeb2"];

/// A service that says back all that it was sent, with a status that means no.
fn mirror(status: u16) -> Http {
    Http::start(move |asked: &Asked| {
        let head: String = asked.headers.iter().map(|(name, value)| format!("{name}: {value}; ")).collect();
        Reply::of(status, format!("you said {head}{}", asked.body))
    })
}

/// A pair of agents of this kind, each with the keys of its own node.
fn case(kind: &str, keys: [String; 2], markers: Vec<Marker>) -> Case {
    let agent = |node: usize| {
        format!(
            "[[fence.agent]]\nname = \"device-{0}\"\ntarget = \"{0}\"\nkind = \"{kind}\"\n{1}\n\n",
            NODES[node], keys[node]
        )
    };
    Case { markers, ..Case::of([agent(0), agent(1)]) }
}

fn redfish(site: &Site, urls: [String; 2], trust: &str, password: &str) -> Case {
    let file = site.secret("bmc", &format!("{password}\n"));
    let keys = urls.map(|url| {
        format!(
            "url = \"{url}\"\nuser = \"fence\"\npassword_file = \"{}\"\n{trust}\npoll = \"50ms\"\ntimeout = \"2s\"",
            file.display()
        )
    });
    Case { works_by_children: false, ..case("redfish", keys, vec![Marker::new("password", password)]) }
}

pub fn redfish_wrong_password(site: &Site) -> Case {
    let fakes = UUIDS.map(|uuid| Fake::plain(vec![machine("Main", uuid)], "another", Box::new(|_, _| Act::Pass)));
    let urls = fakes.each_ref().map(Fake::url);
    Case { _simulators: Box::new(fakes), ..redfish(site, urls, "plaintext = true", &unique("wrack")) }
}

pub fn redfish_whose_errors_repeat_the_login(site: &Site) -> Case {
    let mirrors = [(); 2].map(|()| mirror(403));
    let urls = mirrors.each_ref().map(Http::url);
    let case = redfish(site, urls, "plaintext = true", &unique("spume"));
    Case { _simulators: Box::new(mirrors), device: Device::Repeats, ..case }
}

pub fn redfish_with_a_strangers_certificate(site: &Site) -> Case {
    let certs = Certs::make();
    let fakes = UUIDS.map(|uuid| {
        let provider = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let tls = provider.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
        let tls = tls.with_single_cert(vec![certs.der("selfmade")], certs.key("selfmade")).unwrap();
        Fake::tls(tls, vec![machine("Main", uuid)], "another")
    });
    let urls = fakes.each_ref().map(Fake::url);
    let trust = format!("ca_file = \"{}\"", certs.pem("ca").display());
    Case { _simulators: Box::new((fakes, certs)), ..redfish(site, urls, &trust, &unique("shoal")) }
}

pub fn ec2_whose_errors_repeat_the_keys(site: &Site) -> Case {
    let (secret, session) = (unique("brine"), unique("ebb"));
    let file = site.secret(
        "aws.env",
        &format!("AWS_ACCESS_KEY_ID=AKIAHERON\nAWS_SECRET_ACCESS_KEY={secret}\nAWS_SESSION_TOKEN={session}\n"),
    );
    let words = format!("you said {secret} and {session}");
    let mirror = Http::start(move |asked: &Asked| {
        let token = asked.header("x-amz-security-token").unwrap_or_default();
        let error = format!("<Error><Code>UnauthorizedOperation</Code><Message>{words}, {token}</Message></Error>");
        Reply::of(403, format!("<Response><Errors>{error}</Errors><RequestID>1</RequestID></Response>"))
    });
    let keys = ["i-0aaaaaaaaaaaaaaa1", "i-0bbbbbbbbbbbbbbb2"].map(|instance| {
        format!(
            "region = \"eu-central-1\"\nendpoint = \"{}\"\nplaintext = true\ninstance = \"{instance}\"\n\
             environment_file = \"{}\"\npoll = \"50ms\"\ntimeout = \"2s\"",
            mirror.url(),
            file.display()
        )
    });
    let markers = vec![Marker::new("secret access key", &secret), Marker::new("session token", &session)];
    let case = case("ec2-power", keys, markers);
    Case { _simulators: Box::new(mirror), device: Device::Repeats, works_by_children: false, ..case }
}

pub fn openstack_whose_errors_repeat_the_secret(site: &Site) -> Case {
    let secret = unique("fjord");
    let file = site.secret("openstack", &secret);
    let mirror = mirror(401);
    let keys = UUIDS.map(|server| {
        format!(
            "auth_url = \"{}/v3\"\nplaintext = true\napplication_credential_id = \"heron\"\nserver = \"{server}\"\n\
             application_credential_secret_file = \"{}\"\nguest_shutdown = \"0s\"\npoll = \"50ms\"\ntimeout = \"4s\"",
            mirror.url(),
            file.display()
        )
    });
    let case = case("openstack-power", keys, vec![Marker::new("application credential", &secret)]);
    Case { _simulators: Box::new(mirror), device: Device::Repeats, works_by_children: false, ..case }
}

/// It describes itself, and for anything else shows what it was given.
const DESCRIBES_ITSELF: &str = r#"input=$(cat); case "$input" in *action=metadata*) cat <<'END'
<?xml version="1.0" ?><resource-agent name="agent" shortdesc="test"><parameters>
<parameter name="action" required="1"><content type="string"/></parameter>
<parameter name="ip" required="0"><content type="string"/></parameter>
<parameter name="plug" required="0"><content type="string"/></parameter>
<parameter name="password" required="0"><content type="string"/></parameter></parameters>
<actions><action name="on"/><action name="off"/><action name="status"/><action name="monitor"/></actions></resource-agent>
END
exit 0;; esac
{ echo "$input"; env; echo "$@"; } >&2; exit 1"#;

pub fn fence_agent_that_shows_all_it_gets(site: &Site) -> Case {
    let program = site.script("fence_shell", DESCRIBES_ITSELF);
    let password = unique("groyne");
    let file = site.secret("pdu", &password);
    let keys = [1, 2].map(|plug| {
        format!(
            "program = \"{}\"\nscope = \"node\"\noptions = {{ ip = \"127.0.0.1\", plug = \"{plug}\" }}\n\
             secret_options = {{ password = \"{}\" }}\ntimeout = \"4s\"\npoll = \"50ms\"",
            program.display(),
            file.display()
        )
    });
    let case = case("fence-agent", keys, vec![Marker::new("password", &password)]);
    Case { device: Device::Repeats, ..case }
}

/// A gate is asked over a pipe: what stands in for ssh here gets nothing but the question.
pub fn nfs_gate_that_shows_all_it_gets(site: &Site) -> Case {
    gate(site, "nfs-export")
}

pub fn iscsi_gate_that_shows_all_it_gets(site: &Site) -> Case {
    gate(site, "iscsi-acl")
}

fn gate(site: &Site, kind: &str) -> Case {
    let program = site.script("gate", super::ECHO);
    // Beside a power switch of the same level, which an attempt of any token may use.
    let keys = NODES.map(|node| {
        let outlet = super::exec_agent(&format!("pdu-{node}"), node, &program, "timeout = \"2s\"");
        format!("gate = \"estuary\"\ntake = false\ncommand = [\"{}\"]\ntimeout = \"2s\"\n{outlet}", program.display())
    });
    case(kind, keys, Vec::new())
}
