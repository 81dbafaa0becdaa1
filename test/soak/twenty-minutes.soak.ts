/**
 * Twenty minutes in which all of a service of the last release is upgraded to this version and one
 * of everything is killed, on a Galera cluster and a bucket, at three pictures a second; the nodes
 * are real ones with a tiny model. Callers who come again as docs/rest.md says see no failure.
 */
import { after, before, describe, it } from 'node:test';
import { openSeveralMachines } from '../chaos/chaos-ground.ts';
import { galeraSkipReason } from '../support/databases/galera-cluster.ts';
import { missingStore } from '../support/object-storage/object-store.ts';
import { upgradeEverything } from '../upgrade/everything-at-once.ts';
import { lastRelease, releaseSkipReason } from '../upgrade/releases.ts';
import { uniformPicture } from '../upgrade/steady-load.ts';
import { UpgradeUnderLoad } from '../upgrade/upgrade-under-load.ts';

const PER_SECOND = 3;
/** A node, a control plane and, each for a moment, the database and the storage. */
const LOST_MAX = 3;

const release = lastRelease();
const skip = releaseSkipReason(release) || galeraSkipReason() || missingStore('versitygw');

describe(`twenty minutes from ${release.version} to this version`, { skip }, () => {
  let upgrade: UpgradeUnderLoad;

  before(async () => {
    upgrade = await UpgradeUnderLoad.start(release, {
      controlPlanes: 2,
      nodes: 3,
      model: 'tiny',
      openGround: openSeveralMachines,
    });
  });
  after(() => upgrade?.close());

  it('shows callers no failure', async t => {
    await upgrade.begin(PER_SECOND, uniformPicture);
    await upgradeEverything(t, upgrade);
  });

  it('cut out and charged every picture once, and told of each', t => upgrade.finish(t, LOST_MAX));
});
