import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import type { Account } from '@matting/accounts/account-store.ts';
import type { AuditEntry, ServiceActor } from '@matting/accounts/audit-log.ts';
import type { ApiKey } from '@matting/accounts/keys/read-api-keys.ts';
import type { LedgerOutcome } from '@matting/accounts/ledger/ledger-store.ts';
import {
  type QuotaLease,
  quotaBlockOf,
  quotaWindowStartMs,
} from '@matting/accounts/rates/rate-windows.ts';
import { rowOf, setIn } from '@matting/database/test/rows.ts';
import { at } from '@matting/test-support/at.ts';
import type { LiveResult } from '../results/lost-result-store.ts';
import type { SweepClaim } from '../retention/sweep-store.ts';
import type { Stores } from '../stores.ts';
import type { ChangingMethod, Fixture } from './changing-methods.ts';
import {
  actionsOf,
  assertBalanced,
  fundedAccount,
  HOUR_MS,
  movements,
  OPERATOR,
  resultOf,
  runningOf,
  successOf,
} from './fixtures.ts';

const LEASE_MS = 600_000;

function entry(kind: 'grant' | 'revoke'): ChangingMethod {
  return {
    name: `ledger.${kind}`,
    arrange: async ({ stores, ...fixture }) => {
      const account = await fixture.account(10);
      const reference = randomUUID();
      const logged: AuditEntry<ServiceActor> = {
        id: randomUUID(),
        accountId: account,
        actor: { kind: 'operator' },
        action: 'credits.moved',
        subject: reference,
      };
      return {
        act: faulty => faulty.ledger[kind](account, 4, reference, logged),
        check: async outcome => {
          assert.match((outcome as LedgerOutcome).kind, /^(already-)?entered$/);
          const log = await stores.audit.list(account, { limit: 9 });
          assert.deepEqual(
            log.map(({ id }) => id),
            [logged.id],
          );
          const credits = await stores.ledger.credits(account);
          const sums = kind === 'grant' ? [14, 14, 0] : [6, 10, 4];
          assert.deepEqual([credits?.available, credits?.granted, credits?.revoked], sums);
        },
      };
    },
    again: 'already-entered',
  };
}

const AUDITED: ChangingMethod = {
  name: 'ledger.audit',
  alone: true,
  arrange: async ({ stores, database }) => {
    await database.kysely.deleteFrom('ledger_audits').execute();
    const account = await fundedAccount(stores, 10);
    for (const reference of ['a', 'b']) await stores.ledger.grant(account, 1, reference);
    return {
      act: faulty => faulty.ledger.audit(),
      check: async outcome => {
        assert.deepEqual((outcome as { problems: unknown[] }).problems, []);
        const ended = await stores.ledger.lastAudits();
        assert.deepEqual(
          ended.map(({ kind, problems }) => [kind, problems]),
          [['full', 0]],
        );
      },
    };
  },
};

function registration() {
  const name = randomUUID();
  return {
    nodeId: `node-${name.slice(0, 8)}`,
    bootId: name,
    address: 'node.example:50051',
    httpAddress: '',
    version: 'test',
  };
}

function ofNode(
  method: 'heartbeat' | 'deregister' | 'setDraining' | 'noteModels',
  call: (stores: Stores, node: ReturnType<typeof registration>) => Promise<unknown>,
  expected: { live: boolean; gone: boolean; draining: boolean },
  told: unknown,
): ChangingMethod {
  const arranged = async ({ stores }: Fixture) => {
    const node = registration();
    await stores.nodes.register(node, LEASE_MS);
    return node;
  };
  return {
    name: `nodes.${method}`,
    // Any registration removes nodes that left.
    alone: method === 'deregister',
    arrange: async fixture => {
      const node = await arranged(fixture);
      return {
        act: faulty => call(faulty, node),
        check: async outcome => {
          assert.deepEqual(outcome, told);
          const member = await fixture.stores.nodes.find(node.nodeId);
          const { live, gone, draining } = member ?? {};
          assert.deepEqual({ live, gone, draining }, expected);
        },
      };
    },
    ...(method === 'setDraining'
      ? {}
      : {
          late: async fixture => {
            const node = await arranged(fixture);
            // Another process took its name.
            await fixture.stores.nodes.register({ ...node, bootId: randomUUID() }, LEASE_MS);
            const refused = method === 'heartbeat' ? { known: false, draining: false } : false;
            return { act: faulty => call(faulty, node), told: refused };
          },
        }),
  };
}

/** After the lease ended, renewing makes the sighting count again. */
function ofSighting(method: 'note' | 'renew' | 'remove'): ChangingMethod {
  return {
    name: `sightings.${method}`,
    arrange: async ({ stores }) => {
      const replica = `replica-${randomUUID().slice(0, 8)}`;
      const { nodeId, bootId } = registration();
      const cause = 'its certificate has expired';
      const seen = { nodeId, bootId, state: 'unreachable', cause } as const;
      if (method !== 'note') {
        await stores.sightings.note(
          replica,
          [{ ...seen, forMs: 0 }],
          method === 'renew' ? -1 : 1e6,
        );
      }
      const calls = {
        note: ({ sightings }: Stores) =>
          sightings.note(replica, [{ ...seen, forMs: 1000 }], LEASE_MS),
        renew: ({ sightings }: Stores) => sightings.renew(replica, LEASE_MS),
        remove: ({ sightings }: Stores) => sightings.remove(replica),
      };
      return {
        act: calls[method],
        check: async outcome => {
          if (method === 'renew') assert.equal(outcome, true);
          const { replicas, all } = await stores.sightings.list();
          const expected = method === 'remove' ? [] : [{ ...seen, replica }];
          const own = all.filter(one => one.replica === replica);
          assert.deepEqual(
            own.map(({ sinceMs: _, ...rest }) => rest),
            expected,
          );
          assert.equal(replicas.includes(replica), method !== 'remove');
        },
      };
    },
  };
}

const canary = (keyId: string) => ({ keyId, ciphertext: new Uint8Array([7, 8]) });

async function begun({ stores, database }: Fixture): Promise<SweepClaim> {
  await database.kysely.deleteFrom('sweeps').execute();
  const won = await stores.sweeps.claim('replica-1', LEASE_MS);
  assert.ok(won);
  return won.claim;
}

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
          // A second release finds no holder.
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

export async function succeededResult(stores: Stores): Promise<LiveResult> {
  const { account: accountId, claim } = await runningOf(stores);
  const { jobId } = claim;
  const result = resultOf(claim);
  assert.ok(await stores.queue.succeed(claim, successOf(claim, { result })));
  const expiresAtMs = (await stores.jobs.find(jobId))?.expiresAtMs ?? 0;
  return { jobId, accountId, blob: result.blob, expiresAtMs };
}

export const CHANGING_OTHERS: readonly ChangingMethod[] = [
  {
    name: 'accounts.create',
    arrange: async ({ stores }) => {
      const name = `account ${randomUUID().slice(0, 8)}`;
      return {
        act: faulty => faulty.accounts.create(name),
        check: async (outcome, repeated) => {
          const named = (await stores.accounts.list()).filter(account => account.name === name);
          assert.equal(named.length, 1);
          // After an outage the operator's second call finds it there.
          if (!repeated) assert.equal((outcome as Account | undefined)?.id, at(named, 0).id);
        },
      };
    },
  },
  {
    name: 'apiKeys.create',
    arrange: async ({ stores, ...fixture }) => {
      const account = await fixture.account(0);
      return {
        act: faulty => faulty.apiKeys.create(account, 'key'),
        check: async (outcome, repeated) => {
          const { key, token } = outcome as { key: ApiKey; token: string };
          assert.deepEqual(await stores.apiKeys.authenticate(token), {
            apiKeyId: key.id,
            accountId: account,
          });
          // Two calls may leave a key whose token nobody saw.
          const keys = await stores.apiKeys.list(account);
          assert.ok(keys.length <= (repeated ? 2 : 1), `${keys.length} keys`);
        },
      };
    },
  },
  {
    name: 'apiKeys.revoke',
    arrange: async ({ stores, ...fixture }) => {
      const account = await fixture.account(0);
      const { key, token } = await stores.apiKeys.create(account, 'key');
      return {
        act: faulty => faulty.apiKeys.revoke(key.id),
        check: async outcome => {
          const row = at(await stores.apiKeys.list(account), 0);
          assert.ok(row.revokedAtMs !== null);
          assert.equal((outcome as ApiKey).revokedAtMs, row.revokedAtMs);
          assert.equal(await stores.apiKeys.authenticate(token), 'unknown');
        },
      };
    },
  },
  entry('grant'),
  entry('revoke'),
  AUDITED,
  {
    name: 'nodes.register',
    arrange: async ({ stores }) => {
      const node = registration();
      return {
        act: faulty => faulty.nodes.register(node, LEASE_MS),
        check: async outcome => {
          assert.deepEqual(outcome, { draining: false });
          const known = (await stores.nodes.listAll()).filter(one => one.nodeId === node.nodeId);
          assert.deepEqual(
            known.map(({ bootId, live }) => ({ bootId, live })),
            [{ bootId: node.bootId, live: true }],
          );
        },
      };
    },
  },
  ofNode(
    'heartbeat',
    (stores, { nodeId, bootId }) => stores.nodes.heartbeat(nodeId, bootId, LEASE_MS),
    { live: true, gone: false, draining: false },
    { known: true, draining: false },
  ),
  ofNode(
    'deregister',
    (stores, { nodeId, bootId }) => stores.nodes.deregister(nodeId, bootId),
    { live: false, gone: true, draining: false },
    true,
  ),
  ofNode(
    'setDraining',
    (stores, { nodeId }) => stores.nodes.setDraining(nodeId, true),
    { live: true, gone: false, draining: true },
    true,
  ),
  ofNode(
    'noteModels',
    (stores, { nodeId, bootId }) => stores.nodes.noteModels(nodeId, bootId, []),
    { live: true, gone: false, draining: false },
    true,
  ),
  ...(['note', 'renew', 'remove'] as const).map(ofSighting),
  {
    name: 'rateQuotas.lease',
    arrange: async ({ stores, database }) => {
      const account = await fundedAccount(stores, 0);
      const limit = 600;
      const block = quotaBlockOf(limit);
      const windowStartMs = quotaWindowStartMs(await stores.rateQuotas.nowMs());
      const ask = { limit, block, advance: block, windowStartMs };
      return {
        act: faulty => faulty.rateQuotas.lease(account, 'submissions', ask),
        check: async outcome => {
          const lease = outcome as QuotaLease;
          const row = await rowOf(database.kysely, 'rate_quotas', { account_id: account });
          assert.equal(lease.granted, block);
          // If a minute ended meanwhile, no advance is due.
          const least = lease.windowStartMs === windowStartMs ? 2 : 1;
          const blocks = row.leased / block;
          // A block whose answer was lost stays unused: never too many.
          assert.ok([2, 3, 4].includes(blocks) || blocks === least, `${row.leased} leased`);
        },
      };
    },
  },
  {
    name: 'secretsCanary.establish',
    alone: true,
    arrange: async ({ stores, database }) => {
      await database.kysely.deleteFrom('secrets_canary').execute();
      return {
        act: faulty => faulty.secretsCanary.establish(canary('ours')),
        check: async outcome => {
          assert.deepEqual(outcome, canary('ours'));
          assert.deepEqual(await stores.secretsCanary.establish(canary('theirs')), canary('ours'));
        },
      };
    },
  },
  {
    name: 'secretsCanary.replace',
    alone: true,
    arrange: async ({ stores, database }) => {
      await database.kysely.deleteFrom('secrets_canary').execute();
      await stores.secretsCanary.establish(canary('old'));
      return {
        act: faulty => faulty.secretsCanary.replace('old', canary('new')),
        check: async () => {
          assert.deepEqual(await stores.secretsCanary.establish(canary('any')), canary('new'));
        },
      };
    },
    late: async ({ stores, database }) => {
      await database.kysely.deleteFrom('secrets_canary').execute();
      await stores.secretsCanary.establish(canary('newest'));
      return { act: faulty => faulty.secretsCanary.replace('old', canary('new')), told: undefined };
    },
  },
  {
    name: 'bootstrap',
    alone: true,
    arrange: async ({ stores, database }) => {
      for (const table of ['accounts', 'api_keys', 'ledger_entries'] as const) {
        await database.kysely.deleteFrom(table).execute();
      }
      return {
        act: faulty => faulty.bootstrap('first', 50),
        check: async (outcome, repeated) => {
          const accounts = await stores.accounts.list();
          assert.deepEqual(
            accounts.map(({ name, available }) => [name, available]),
            [['first', 50]],
          );
          assert.equal((await stores.apiKeys.list()).length, 1);
          const done = outcome as Awaited<ReturnType<Stores['bootstrap']>>;
          // If the call was repeated, the operator makes another key.
          if (repeated && !done.created) return;
          assert.ok(done.created, 'its key is told');
          const owner = await stores.apiKeys.authenticate(done.token);
          assert.equal((owner as { accountId: string }).accountId, at(accounts, 0).id);
        },
      };
    },
  },
  {
    name: 'sweeps.claim',
    alone: true,
    arrange: async ({ stores, database }) => {
      await database.kysely.deleteFrom('sweeps').execute();
      return {
        act: faulty => faulty.sweeps.claim('replica-1', LEASE_MS),
        check: async () => {
          // A lease whose answer was lost runs out before the next one.
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
  {
    name: 'lostResults.repay',
    arrange: async ({ stores, database }) => {
      const { jobId, accountId } = await succeededResult(stores);
      const repayment = { missing: new Set<string>(), auditId: randomUUID() };
      return {
        act: by => by.lostResults.repay({ jobId, accountId }, repayment),
        check: async () => {
          const granted = ['grant first 1', `grant lost:${jobId} 1`];
          assert.deepEqual(await movements(database, accountId), granted);
          assert.deepEqual(await actionsOf(stores, accountId), ['credits.granted']);
          await assertBalanced(stores, accountId);
        },
      };
    },
    again: 'settled',
  },
  {
    name: 'audit.removeOld',
    alone: true,
    arrange: async ({ stores, database: { kysely } }) => {
      const account = await fundedAccount(stores, 0);
      await stores.apiKeys.createBy(account, 'key', { actor: OPERATOR, aliveMax: 9, everMax: 9 });
      await setIn(kysely, 'audit_entries', { account_id: account }, { created_at: 1 });
      return {
        act: faulty => faulty.audit.removeOld(HOUR_MS, 50),
        check: async () => {
          assert.deepEqual(await kysely.selectFrom('audit_entries').selectAll().execute(), []);
        },
      };
    },
  },
];
