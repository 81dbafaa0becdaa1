/**
 * A time in which all of a service is upgraded and one of everything is killed: control planes,
 * nodes, a member of the database's cluster, the server of the bucket; each kind of step is undone
 * once. For the soaks.
 */
import assert from 'node:assert/strict';
import { setTimeout as delay } from 'node:timers/promises';
import type { ExecutionContext } from 'ava';
import { at } from '../support/at.ts';
import type { FleetUnderLoad } from '../support/fleet/fleet-under-load.ts';
import { THIS_VERSION } from '../support/fleet/installed-version.ts';
import { Random } from '../support/random.ts';

/** The whole; `MATTING_SOAK_MINUTES` takes another. */
const MINUTES = Number(process.env.MATTING_SOAK_MINUTES ?? 20);

type Step = readonly [what: string, take: () => Promise<unknown>];

function stepsOf(upgrade: FleetUnderLoad): readonly Step[] {
  const { fleet, old } = upgrade;
  const random = new Random(1);
  const node = (index: number) => at(fleet.nodes, index);
  return [
    ['a node of the release dies', () => node(0).die()],
    ['the first node is upgraded', () => upgrade.step(node(0), THIS_VERSION)],
    ['… and taken back', () => upgrade.step(node(0), old)],
    ['… and upgraded again', () => upgrade.step(node(0), THIS_VERSION)],
    ['the second node is upgraded', () => upgrade.step(node(1), THIS_VERSION)],
    ['a member of the database dies', () => fleet.ground.kill('database', random)],
    ['the database is migrated', () => fleet.command(THIS_VERSION, 'migrate')],
    ['the first control plane is upgraded', () => upgrade.step(fleet.plane(0), THIS_VERSION)],
    ['the storage dies', () => fleet.ground.kill('store', random)],
    ['… and the control plane is taken back', () => upgrade.step(fleet.plane(0), old)],
    ['… and upgraded again', () => upgrade.step(fleet.plane(0), THIS_VERSION)],
    ['a control plane of this version dies', () => fleet.plane(0).die()],
    ['the second control plane is upgraded', () => upgrade.step(fleet.plane(1), THIS_VERSION)],
    ['the last node is upgraded', () => upgrade.step(node(2), THIS_VERSION)],
  ];
}

/** Steps at equal distances, each when the one before is over; the load goes on to the end. */
export async function upgradeEverything(
  t: ExecutionContext,
  upgrade: FleetUnderLoad,
): Promise<void> {
  assert.ok(MINUTES > 0, 'MATTING_SOAK_MINUTES is no number of minutes');
  const steps = stepsOf(upgrade);
  const beganAtMs = performance.now();
  const slotMs = (MINUTES * 60_000) / (steps.length + 1);
  for (const [index, [what, take]] of steps.entries()) {
    await delay(Math.max(0, beganAtMs + (index + 1) * slotMs - performance.now()));
    const startedAtMs = performance.now();
    await take();
    upgrade.load.requireNoFailure();
    const tookS = Math.round((performance.now() - startedAtMs) / 1000);
    t.log(`${what}: ${tookS} s, ${upgrade.load.done.length} pictures so far`);
  }
  await delay(Math.max(0, beganAtMs + MINUTES * 60_000 - performance.now()));
  const tookMinutes = ((performance.now() - beganAtMs) / 60_000).toFixed(1);
  t.log(`${steps.length} steps in ${tookMinutes} minutes`);
}
