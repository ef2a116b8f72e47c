//! Steps that put the new operating system on a node and have it rebooted. Every one of them does nothing on a node that
//! already runs that system; those up to the installation do nothing once it is installed.

use api::reasons;

use crate::{
    host::{
        UPGRADE_DIR, grub, oem, os_image,
        os_image::Progress,
        os_install::Installation,
        reboot::{self, Guard},
    },
    limits::Limits,
    node_run::NodeRun,
};
use program::{
    error::{Error, Result},
    report::Reporter,
    step::{Step, StepContext},
};

/// The steps, in order.
pub(crate) fn steps(limits: &Limits) -> Vec<Step<NodeRun>> {
    vec![
        download_step(limits),
        Step {
            name: "repair-state-file",
            limit: limits.host,
            run: |run, ctx| Box::pin(repair_state(run, ctx)),
        },
        Step {
            name: "shrink-passive-image",
            limit: limits.host,
            run: |run, ctx| Box::pin(shrink_passive(run, ctx)),
        },
        Step {
            name: "install-os",
            limit: limits.install,
            run: |run, ctx| Box::pin(install(run, ctx)),
        },
        Step {
            name: "create-boot-environment",
            limit: limits.host,
            run: |run, _| Box::pin(boot_environment(run)),
        },
        Step {
            name: "set-kernel-arguments",
            limit: limits.host,
            run: |run, _| Box::pin(kernel_arguments(run)),
        },
        Step {
            name: "keep-multipathd-off-longhorn",
            limit: limits.host,
            run: |run, _| Box::pin(multipath(run)),
        },
        Step {
            name: "move-sftp-server",
            limit: limits.host,
            run: |run, ctx| Box::pin(sftp(run, ctx)),
        },
        Step {
            name: "remove-os-image",
            limit: limits.host,
            run: |run, _| Box::pin(remove_image(run)),
        },
        Step {
            name: "arm-reboot",
            limit: limits.host,
            run: |run, ctx| Box::pin(arm_reboot(run, ctx)),
        },
    ]
}

/// Brings the image of the system onto the node. A cluster of one node does it early, while its repository still runs.
pub(crate) fn download_step(limits: &Limits) -> Step<NodeRun> {
    Step {
        name: "download-os-image",
        limit: limits.download,
        run: |run, ctx| Box::pin(download(run, ctx)),
    }
}

fn progress(run: &NodeRun) -> Result<Progress> {
    os_image::progress(&run.root, &run.plan, &run.release()?.file.os)
}

fn is_missing(run: &NodeRun) -> Result<bool> {
    progress(run).map(|progress| progress == Progress::Missing)
}

fn is_running(run: &NodeRun) -> Result<bool> {
    progress(run).map(|progress| progress == Progress::Running)
}

fn installation<'a>(run: &'a NodeRun, report: &'a Reporter) -> Result<Installation<'a>> {
    Ok(Installation {
        root: &run.root,
        tools: run.tools.as_ref(),
        clock: &report.clock,
        plan: &run.plan,
        os: &run.release()?.file.os,
        elemental: &run.elemental,
    })
}

async fn download(run: &NodeRun, ctx: StepContext<'_>) -> Result<()> {
    if !is_missing(run)? {
        tracing::info!(
            os = run.release()?.file.os,
            "the operating system is already on this node"
        );
        return Ok(());
    }
    let release = run.release()?;
    let os = &release.file.os;
    let recorded = run.repository.promise(os_image::IMAGE_IN_REPOSITORY).await?;
    // The repository has read all of the file for its checksum, if that is recorded: once is enough.
    let is_verified = recorded.is_some();
    let promise = recorded.or_else(|| release.bundle.files.get(os_image::IMAGE_IN_REPOSITORY).cloned());
    let promise = promise.unwrap_or_default();
    if os_image::is_fetched(&run.root, &run.plan, os, &promise)? {
        tracing::info!(os, "the image of the operating system is on this node, whole");
        return Ok(());
    }
    let to = run.root.resolve(os_image::IMAGE)?;
    run.repository.save(os_image::IMAGE_IN_REPOSITORY, &to, ctx).await?;
    let mut promised = promise.clone();
    promised.sha256 = promised.sha256.filter(|_| !is_verified);
    let looked = tokio::task::spawn_blocking(move || os_image::flaw(&to, &promised)).await;
    match looked.map_err(|error| Error::Permanent(format!("failed to check {}: {error}", os_image::IMAGE)))?? {
        None => os_image::note_fetched(&run.root, &run.plan, os, &promise),
        Some(flaw) => {
            // The next attempt of the Job downloads it again.
            remove_image(run).await?;
            Err(Error::Permanent(format!(
                "{} from the repository cannot be installed: {flaw}",
                os_image::IMAGE_IN_REPOSITORY
            )))
        }
    }
}

async fn repair_state(run: &NodeRun, ctx: StepContext<'_>) -> Result<()> {
    if is_missing(run)? {
        installation(run, ctx.report)?.repair_state().await
    } else {
        Ok(())
    }
}

async fn shrink_passive(run: &NodeRun, ctx: StepContext<'_>) -> Result<()> {
    if is_missing(run)? {
        installation(run, ctx.report)?.shrink_passive().await
    } else {
        Ok(())
    }
}

async fn install(run: &NodeRun, ctx: StepContext<'_>) -> Result<()> {
    let installation = installation(run, ctx.report)?;
    if is_missing(run)? {
        installation.install().await
    } else {
        // A try that was killed after the installation has not cleaned up behind itself.
        installation.clean_up().await
    }
}

async fn boot_environment(run: &NodeRun) -> Result<()> {
    if is_running(run)? {
        Ok(())
    } else {
        grub::create_environment(&run.root, run.tools.as_ref()).await
    }
}

async fn kernel_arguments(run: &NodeRun) -> Result<()> {
    if is_running(run)? {
        Ok(())
    } else {
        grub::set_kernel_arguments(&run.root, run.tools.as_ref()).await
    }
}

async fn multipath(run: &NodeRun) -> Result<()> {
    if is_running(run)? {
        Ok(())
    } else {
        oem::keep_multipathd_off_longhorn(&run.root)
    }
}

async fn sftp(run: &NodeRun, ctx: StepContext<'_>) -> Result<()> {
    if is_running(run)? {
        Ok(())
    } else {
        installation(run, ctx.report)?.move_sftp_server()
    }
}

async fn remove_image(run: &NodeRun) -> Result<()> {
    run.root.remove(os_image::IMAGE)?;
    // Files of a download next to its target.
    let beside = format!(".{}.", os_image::IMAGE_IN_REPOSITORY);
    for name in run
        .root
        .names_in(UPGRADE_DIR)?
        .iter()
        .filter(|name| name.starts_with(&beside))
    {
        run.root.remove(&format!("{UPGRADE_DIR}/{name}"))?;
    }
    Ok(())
}

async fn arm_reboot(run: &NodeRun, ctx: StepContext<'_>) -> Result<()> {
    if is_running(run)? {
        let os = &run.release()?.file.os;
        tracing::info!(os, "this node already runs the new operating system: no reboot");
        ctx.report.conclude(&no_reboot(os));
        return Ok(());
    }
    // First: nothing may fail once the reboot is armed.
    let boot = os_image::boot(&run.root)?;
    let guard = Guard::of(&run.pod.namespace, &run.pod.name, &run.pod.container);
    reboot::arm(&run.root, run.tools.as_ref(), &guard).await?;
    if !boot.is_empty() {
        ctx.report.conclude(&armed_in(&boot));
    }
    Ok(())
}

/// The termination message of a program that has armed the reboot. The manager reads the boot: a node that is in another one has been
/// rebooted since. When the Job began it may have been in an earlier one, and have lost power in the meantime.
#[must_use]
pub fn armed_in(boot: &str) -> String {
    format!("{}: {boot}", reasons::REBOOT_ARMED)
}

/// The termination message of a program that had nothing to install. The manager reads its beginning: without it, it waits for the
/// node to come back in another boot.
#[must_use]
pub fn no_reboot(os: &str) -> String {
    format!("{}: this node already runs {os}", reasons::NO_REBOOT)
}
