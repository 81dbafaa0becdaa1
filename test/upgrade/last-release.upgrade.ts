/**
 * From the last release to this version under load, one process after the other, old and new side
 * by side, each step undone once: callers who come again as docs/rest.md says see no failure. The
 * release is its own commit with the packages of its own lock file, and every process is a real
 * one; only the nodes' model is a tiny one.
 */
import assert from 'node:assert/strict';
import { after, describe, it } from 'node:test';
import { NOTHING_RECORDED } from '../../control-plane/test/store/database/last-release/snapshot.ts';
import { DIALECTS, skipReason } from '../support/database.ts';
import { FleetUnderLoad } from '../support/fleet/fleet-under-load.ts';
import { openOneFile, openOneMachine } from '../support/fleet/ground.ts';
import { THIS_VERSION } from '../support/fleet/installed-version.ts';
import { uniformPicture } from '../support/fleet/steady-load.ts';
import { lastRelease, releaseSkipReason } from './releases.ts';
import { requireSideBySide } from './side-by-side.ts';

const PER_SECOND = 3;
/** Of both versions' control planes one dies, and no job is worked on by both. */
const LOST_MAX = 1;
const GROUNDS = { sqlite: openOneFile, mysql: openOneMachine };

const release = lastRelease();
const noRelease = releaseSkipReason(release);

if (release.commit === '') it(NOTHING_RECORDED, () => undefined);

for (const dialect of DIALECTS) {
  describe(`an upgrade from ${release.version} on ${dialect}`, {
    skip: noRelease || skipReason(dialect),
  }, () => {
    let upgrade: FleetUnderLoad;

    after(() => upgrade?.close());

    it('begins with a service of the release under load', async () => {
      const openGround = GROUNDS[dialect];
      const options = { controlPlanes: 2, nodes: 3, model: 'tiny' as const, openGround };
      upgrade = await FleetUnderLoad.start(options, release);
      await upgrade.begin(PER_SECOND, uniformPicture);
    });

    it('brings the nodes to this version, takes the first step back, and goes on', async () => {
      const [first, ...others] = upgrade.fleet.nodes;
      assert.ok(first);
      for (const version of [THIS_VERSION, upgrade.old]) await upgrade.step(first, version);
      for (const node of [first, ...others]) await upgrade.step(node, THIS_VERSION);
    });

    it('migrates under control planes of the release, which may be started again', async () => {
      await upgrade.fleet.command(THIS_VERSION, 'migrate');
      await upgrade.step(upgrade.fleet.plane(0), upgrade.old);
    });

    it('brings the first control plane to this version, beside one of the release', async () => {
      const [one, other] = [upgrade.fleet.plane(0), upgrade.fleet.plane(1)];
      await upgrade.step(one, THIS_VERSION);
      upgrade.otherPictures += await requireSideBySide(upgrade.fleet, one, other);
      await upgrade.step(one, upgrade.old);
      await upgrade.step(one, THIS_VERSION);
    });

    it('loses nothing that either of the two had in hand when it died', async () => {
      for (const plane of upgrade.fleet.planes) {
        await plane.die();
        await upgrade.load.more(6);
      }
    });

    it('brings the other control plane to this version', () =>
      upgrade.step(upgrade.fleet.plane(1), THIS_VERSION));

    it('has cut out and charged every picture once, and told of each', t =>
      upgrade.finish(t, LOST_MAX));
  });
}
