//! Makes the certificate of a repository: self-signed, since its clients get this certificate.

use std::time::Duration;

use jiff::Timestamp;
use rcgen::{
    CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, KeyPair, KeyUsagePurpose, date_time_ymd,
};

use super::{Identity, TlsError};

/// How long a certificate is valid. An upgrade takes days; its key goes with its plan.
pub const LIFE: Duration = Duration::from_hours(180 * 24);
/// A certificate is valid from a while before it was made: clocks of nodes may be behind.
const SKEW: Duration = Duration::from_hours(24);

/// Makes a certificate for DNS names and a key for it. Takes randomness.
///
/// # Errors
/// A name is no DNS name, or there is no randomness.
pub fn mint(names: &[String], now: Timestamp) -> Result<Identity, TlsError> {
    let mut params = CertificateParams::new(names)?;
    params.distinguished_name = DistinguishedName::new();
    params
        .distinguished_name
        .push(DnType::CommonName, "upgrade-toolkit-repository");
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let begins = now.saturating_sub(SKEW).unwrap_or(now);
    let ends = now.saturating_add(LIFE).unwrap_or(now);
    set_dates(&mut params, begins, ends);
    let key = KeyPair::generate()?;
    Ok(Identity {
        certificate: params.self_signed(&key)?.pem(),
        key: key.serialize_pem(),
    })
}

/// Sets both dates, in whole seconds as certificates count. Without them a certificate of rcgen ends in the year 4096.
pub fn set_dates(params: &mut CertificateParams, begins: Timestamp, ends: Timestamp) {
    let since_1970 = |moment: Timestamp| Duration::from_secs(u64::try_from(moment.as_second()).unwrap_or_default());
    // Cannot overflow: a Timestamp is before the year 10000, up to which this type counts too.
    params.not_before = date_time_ymd(1970, 1, 1) + since_1970(begins);
    params.not_after = date_time_ymd(1970, 1, 1) + since_1970(ends);
}
