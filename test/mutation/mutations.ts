/**
 * Bugs that a ledger on leases must not have. Each is a change of source text that exists only in
 * the memory of a process that is started with it (mutate.ts).
 */
export interface Edit {
  /** From the root of the project. */
  readonly file: string;
  /** Stands there exactly once. */
  readonly find: string;
  readonly replace: string;
}

export interface Mutation {
  readonly name: string;
  readonly edits: readonly Edit[];
  /** Test files of which at least one must fail. */
  readonly caughtBy: readonly string[];
}

const COMPLETION = 'control-plane/src/store/jobs/job-completion.ts';
const LEASE = 'control-plane/src/store/jobs/job-lease.ts';
const ACCOUNT_AUDIT = 'control-plane/src/store/ledger/ledger-account-audit.ts';
const AUDIT_TESTS = 'control-plane/test/store/ledger/ledger-audit.test.ts';
const STORE_TESTS = 'control-plane/test/store/jobs/job-store.test.ts';

export const MUTATIONS: readonly Mutation[] = [
  {
    name: 'whoever once held a job may finish it: no fence',
    edits: [
      {
        file: COMPLETION,
        find: ' || job.fence !== claim.fence) return false',
        replace: ') return false',
      },
      { file: COMPLETION, find: 'job.lease?.holder !== claim.holder || ', replace: '' },
      {
        file: COMPLETION,
        find: ".where('fence', '=', claim.fence)\n      .where('lease_holder', '=', claim.holder)",
        replace: '',
      },
    ],
    caughtBy: [STORE_TESTS],
  },
  {
    name: 'the charge is committed before the state',
    edits: [
      {
        file: COMPLETION,
        find: 'return await transact(this.#database, tx => this.#finishIn(tx, claim, ending));',
        replace: `await transact(this.#database, async tx => {
          const job = await readJob(this.#database, tx, claim.jobId);
          if (job === undefined || job.finishedAtMs !== null) return;
          await this.#settle(tx, job, ending.kind);
          await this.#enter(tx, job, ending.kind);
        });
        return await transact(this.#database, tx => this.#finishIn(tx, claim, ending));`,
      },
      {
        file: COMPLETION,
        find: 'await this.#settle(tx, job, ending.kind);\n    const secret',
        replace: 'const secret',
      },
      {
        file: COMPLETION,
        find: 'await this.#enter(tx, job, ending.kind);\n    if (secret',
        replace: 'if (secret',
      },
    ],
    caughtBy: [STORE_TESTS],
  },
  {
    name: 'a job succeeds that no node was given',
    edits: [
      {
        file: COMPLETION,
        find: "from: ['running'],",
        replace: "from: ['accepted', 'fetching', 'ready', 'running'],",
      },
    ],
    caughtBy: [STORE_TESTS],
  },
  {
    name: 'a credit is released at every telling',
    edits: [
      {
        file: COMPLETION,
        find: 'if (job.finishedAtMs !== null) return ending.happened(job);',
        replace: `if (job.finishedAtMs !== null) {
      if (ending.kind === 'release') {
        await tx
          .updateTable('accounts')
          .set(eb => ({ available: eb('available', '+', CREDITS_PER_JOB) }))
          .where('id', '=', job.accountId)
          .execute();
      }
      return ending.happened(job);
    }`,
      },
    ],
    caughtBy: [STORE_TESTS],
  },
  {
    name: 'a lease is never renewed',
    edits: [
      {
        file: 'control-plane/src/services/dispatch/held-lease.ts',
        find: 'setInterval(() => void this.#renew(), this.#timing.renewMs)',
        replace: 'setInterval(() => undefined, this.#timing.renewMs)',
      },
    ],
    caughtBy: ['control-plane/test/services/dispatch/held-lease.test.ts'],
  },
  {
    name: 'a renewal lengthens nothing',
    edits: [
      {
        file: LEASE,
        find: 'heldBy(update, claim).set({\n        lease_expires_at: nowPlusMs(this.#database.nowMs, leaseMs),',
        replace:
          'heldBy(update, claim).set({\n        lease_expires_at: nowPlusMs(this.#database.nowMs, 0),',
      },
    ],
    caughtBy: [STORE_TESTS],
  },
  {
    name: 'an account is closed although a transaction may still write before the checkpoint',
    edits: [
      {
        file: ACCOUNT_AUDIT,
        find: 'await awaitEarlierWriters(this.#database, this.#accountId);',
        replace: '',
      },
    ],
    caughtBy: [AUDIT_TESTS],
  },
  {
    name: 'a checkpoint is set behind what is wrong, which no later check then sees',
    edits: [
      {
        file: ACCOUNT_AUDIT,
        find: 'this.#ahead.length > 0 || !closes || !this.#clean',
        replace: 'this.#ahead.length > 0 || !closes',
      },
    ],
    caughtBy: [AUDIT_TESTS],
  },
  {
    name: 'a balance that contradicts its checkpoint is not looked into',
    edits: [
      {
        file: ACCOUNT_AUDIT,
        find: 'verdict.agrees || last === undefined',
        replace: 'true',
      },
    ],
    caughtBy: [AUDIT_TESTS],
  },
];
