//! Makes certificates: an authority and one certificate by it. The authority's key is thrown away at once, so that
//! no client can make another.

use std::time::Duration;

use jiff::Timestamp;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use release::tls::set_dates;

use super::{Pem, TlsError};

/// How long a certificate is valid; a third of it before its end it is replaced.
pub const LIFE: Duration = Duration::from_hours(90 * 24);
/// A certificate is valid from a little before it was made: clocks of other machines may be behind.
const SKEW: Duration = Duration::from_hours(1);

/// A certificate and the authority that signed it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Minted {
    /// The certificate with its key.
    pub pem: Pem,
    /// The authority.
    pub authority: String,
}

/// Makes a certificate for DNS names, valid for `life` from now.
///
/// # Errors
/// A name is no DNS name, or there is no randomness.
pub fn mint(names: &[String], now: Timestamp, life: Duration) -> Result<Minted, TlsError> {
    // rcgen's own default is the year 4096, with which rotation would be theatre.
    let begins = now.saturating_sub(SKEW).unwrap_or(now);
    let ends = now.saturating_add(life).unwrap_or(now);
    let mut authority = CertificateParams::default();
    authority.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    // Two authorities are trusted around a rotation; different names keep verifiers from mixing them up.
    authority.distinguished_name = named(&format!("upgrade-toolkit-webhook-ca-{}", now.as_second()));
    set_dates(&mut authority, begins, ends);
    let authority_key = KeyPair::generate()?;
    let authority_certificate = authority.self_signed(&authority_key)?;

    let mut server = CertificateParams::new(names)?;
    server.distinguished_name = named("upgrade-toolkit-webhook");
    server.use_authority_key_identifier_extension = true;
    server.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    server.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    set_dates(&mut server, begins, ends);
    let server_key = KeyPair::generate()?;
    let certificate = server.signed_by(&server_key, &Issuer::new(authority, authority_key))?;
    Ok(Minted {
        pem: Pem {
            chain: certificate.pem(),
            key: server_key.serialize_pem(),
        },
        authority: authority_certificate.pem(),
    })
}

fn named(name: &str) -> DistinguishedName {
    let mut names = DistinguishedName::new();
    names.push(DnType::CommonName, name);
    names
}

#[cfg(test)]
mod tests {
    use super::{super::Certificate, *};

    #[test]
    fn both_dates_are_set_and_the_last_third_is_the_time_to_replace_it() {
        let now: Timestamp = "2026-03-13T03:57:09Z".parse().unwrap();
        let minted = mint(&["webhook.ns.svc".to_owned()], now, LIFE).unwrap();
        let certificate = Certificate::read(&minted.pem).unwrap();
        assert_eq!(certificate.begins, "2026-03-13T02:57:09Z".parse().unwrap());
        assert_eq!(certificate.ends, "2026-06-11T03:57:09Z".parse().unwrap());
        assert_eq!(certificate.due(), "2026-05-12T03:37:09Z".parse().unwrap());
    }

    #[test]
    fn clients_accept_it_for_its_names_and_its_time_only() {
        let now: Timestamp = "2026-03-13T03:57:09Z".parse().unwrap();
        let minted = mint(&["webhook.ns.svc".to_owned()], now, LIFE).unwrap();
        let certificate = Certificate::read(&minted.pem).unwrap();
        let accepts = |name: &str, now: Timestamp| certificate.verify(&minted.authority, name, now).is_ok();
        assert!(accepts("webhook.ns.svc", now));
        assert!(!accepts("webhook.other.svc", now));
        assert!(!accepts(
            "webhook.ns.svc",
            now.saturating_add(LIFE + Duration::from_secs(1)).unwrap()
        ));
        assert!(!accepts(
            "webhook.ns.svc",
            now.saturating_sub(Duration::from_hours(2)).unwrap()
        ));
        let other = mint(&["webhook.ns.svc".to_owned()], now, LIFE).unwrap();
        assert!(certificate.verify(&other.authority, "webhook.ns.svc", now).is_err());
    }

    #[test]
    fn a_key_of_another_certificate_is_refused() {
        let now: Timestamp = "2026-03-13T03:57:09Z".parse().unwrap();
        let make = || mint(&["webhook.ns.svc".to_owned()], now, LIFE).unwrap().pem;
        let mixed = Pem {
            chain: make().chain,
            key: make().key,
        };
        assert!(matches!(Certificate::read(&mixed), Err(TlsError::Unusable(_))));
    }
}
