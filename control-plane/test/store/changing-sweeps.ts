/** The methods that change who sweeps and where the walk over the blobs stands. */
import assert from 'node:assert/strict';
import type { SweepClaim } from '../../src/store/cluster/sweep-store.ts';
import type { Stores } from '../../src/store/stores.ts';
import type { ChangingMethod, Fixture } from './changing-methods.ts';
import { rowOf } from './rows.ts';

const LEASE_MS = 600_000;

/** Nobody sweeps, and nobody ever did. */
async function begun({ stores, database }: Fixture): Promise<SweepClaim> {
  await database.kysely.deleteFrom('sweeps').execute();
  const won = await stores.sweeps.claim('replica-1', LEASE_MS);
  assert.ok(won);
  return won.claim;
}

/** Its lease ran out under it, and another replica sweeps. */
async function overtaken(fixture: Fixture): Promise<SweepClaim> {
  const claim = await begun(fixture);
  assert.ok(await fixture.stores.sweeps.renew(claim, -1));
  assert.ok(await fixture.stores.sweeps.claim('replica-2', LEASE_MS));
  return claim;
}

function byClaim(
  name: 'renew' | 'release' | 'saveWalk',
  call: (stores: Stores, claim: SweepClaim) => Promise<boolean>,
  expected: { holder: string | null; part: number },
): ChangingMethod {
  return {
    name: `sweeps.${name}`,
    alone: true,
    arrange: async fixture => {
      const claim = await begun(fixture);
      return {
        act: stores => call(stores, claim),
        check: async outcome => {
          // What was given back is nobody's when it is given back again.
          if (name !== 'release') assert.equal(outcome, true);
          const sweeps = fixture.database.kysely.selectFrom('sweeps').selectAll();
          const row = await sweeps.executeTakeFirstOrThrow();
          assert.deepEqual({ holder: row.lease_holder, part: row.walk_part }, expected);
        },
      };
    },
    late: async fixture => {
      const claim = await overtaken(fixture);
      return { act: stores => call(stores, claim), told: false };
    },
  };
}

export const CHANGING_SWEEPS: readonly ChangingMethod[] = [
  {
    name: 'sweeps.claim',
    alone: true,
    arrange: async ({ stores, database }) => {
      await database.kysely.deleteFrom('sweeps').execute();
      return {
        act: faulty => faulty.sweeps.claim('replica-1', LEASE_MS),
        check: async () => {
          // Won, or taken for lost: then the next one comes when the lease has run out.
          const row = await rowOf(database.kysely, 'sweeps', {});
          assert.deepEqual([row.fence, row.lease_holder], [1, 'replica-1']);
          await database.kysely.updateTable('sweeps').set({ lease_expires_at: 1 }).execute();
          assert.equal((await stores.sweeps.claim('replica-2', LEASE_MS))?.claim.fence, 2);
        },
      };
    },
    late: async fixture => {
      await begun(fixture);
      return { act: stores => stores.sweeps.claim('replica-2', LEASE_MS), told: undefined };
    },
  },
  byClaim('renew', (stores, claim) => stores.sweeps.renew(claim, LEASE_MS), {
    holder: 'replica-1',
    part: 0,
  }),
  byClaim('release', (stores, claim) => stores.sweeps.release(claim), { holder: null, part: 0 }),
  byClaim('saveWalk', (stores, claim) => stores.sweeps.saveWalk(claim, 3, true), {
    holder: 'replica-1',
    part: 3,
  }),
];
