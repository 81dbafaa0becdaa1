/** What the store must not lose: the fence of jobs and notifications, money, keys and commits. */
import { inFile, type Mutation } from './mutation.ts';

const LEASE = 'control-plane/src/store/jobs/job-lease.ts';
const COMPLETION = 'control-plane/src/store/jobs/job-completion.ts';
const SUBMISSION = 'control-plane/src/store/jobs/job-submission.ts';
const KEYS = 'control-plane/src/store/jobs/job-submission.ts';
const LEDGER = 'control-plane/src/store/ledger/ledger-store.ts';
const WRITER = 'control-plane/src/store/ledger/ledger-writer.ts';
const AUDIT = 'control-plane/src/store/ledger/ledger-audit.ts';
const OUTBOX = 'control-plane/src/store/outbox/outbox-store.ts';
const GROUP = 'control-plane/src/store/database/sqlite/sqlite-group-commit.ts';

/** A condition of both claims. */
const NOT_LEASED = "eb.or([eb('lease_holder', 'is', null), eb('lease_expires_at', '<=', nowMs)])";

const STORE_TESTS = 'control-plane/test/store';
const inLeases = inFile(`${STORE_TESTS}/jobs/job-lease.test.ts`, 'jobs on sqlite leases');
const inEndings = inFile(`${STORE_TESTS}/jobs/job-completion.test.ts`, 'jobs on sqlite endings');
const inSubmission = inFile(`${STORE_TESTS}/jobs/job-store.test.ts`, 'jobs on sqlite submission');
const inKeys = inFile(`${STORE_TESTS}/jobs/job-store.test.ts`, 'keys that end on sqlite');
const FENCE_TESTS = `${STORE_TESTS}/jobs/job-fence.test.ts`;
const inFence = inFile(FENCE_TESTS, 'the fence of a job on sqlite');
/** SQLite runs one writing transaction at a time: what comes between two takes a server. */
const inFenceOnServer = inFile(FENCE_TESTS, 'the fence of a job on mysql');
const inOutbox = inFile(
  `${STORE_TESTS}/outbox/webhook-fence.test.ts`,
  'the fence of a notification on sqlite',
);
const inLedger = inFile(`${STORE_TESTS}/ledger/ledger.test.ts`, 'the ledger on sqlite');
const inAudit = inFile(
  `${STORE_TESTS}/ledger/ledger-audit.test.ts`,
  "the ledger's audit on sqlite",
);
const inBrokenLedger = inFile(
  `${STORE_TESTS}/ledger/broken-ledger.test.ts`,
  "the ledger's audit on sqlite of a broken ledger",
);
const inGroup = inFile(
  `${STORE_TESTS}/database/sqlite-group-commit.test.ts`,
  'transactions that are ready together',
);

const CLAIMS: readonly Mutation[] = [
  {
    name: 'a claim is won with the fence of an old listing',
    file: LEASE,
    find: ".where('fence', '=', fenceBefore)\n",
    replace: '\n',
    caughtBy: inLeases('let one claim win, raise the fence, and hide the job from others'),
  },
  {
    name: 'a claim is won while another holds the lease',
    file: LEASE,
    find: NOT_LEASED,
    replace: 'eb.and([])',
    caughtBy: inLeases('let one claim win, raise the fence, and hide the job from others'),
  },
  {
    name: 'a job that ended is claimed again',
    file: LEASE,
    find: ".where('queue_at', 'is not', null)",
    replace: '',
    caughtBy: inFence('an ended job is claimed by nobody'),
  },
  {
    name: 'a claim that was overtaken before its answer came counts',
    file: LEASE,
    find: 'claimed === undefined || !holds(claimed, claim)',
    replace: 'claimed === undefined',
    caughtBy: inFence('a claim that was overtaken before its answer came is no claim'),
  },
  {
    name: 'an earlier claim of the same replica still holds the lease',
    file: LEASE,
    find: ".where('fence', '=', claim.fence)",
    replace: '',
    caughtBy: inLeases('claimed anew by the same replica are void for its own earlier claim'),
  },
  {
    name: 'any replica holds the lease',
    file: LEASE,
    find: ".where('lease_holder', '=', claim.holder)",
    replace: '',
    caughtBy: inLeases('are renewed by their holder, late too while nobody replaced it'),
  },
  {
    name: 'a renewal lengthens nothing',
    file: LEASE,
    find: 'heldBy(kysely, claim).set({ lease_expires_at: nowPlusMs(nowMs, leaseMs) })',
    replace: 'heldBy(kysely, claim).set({ lease_expires_at: nowPlusMs(nowMs, 0) })',
    caughtBy: inLeases('are renewed by their holder, late too while nobody replaced it'),
  },
  {
    name: 'an input replaces the one that is stored',
    file: LEASE,
    find: ".where('state', '=', 'fetching')",
    replace: '',
    caughtBy: inLeases('make accepted fetching, and stored input ready'),
  },
  {
    name: 'an old claim is told that its input is stored',
    file: LEASE,
    find: '!isFinal(job) && holds(job, claim) && happened(job)',
    replace: '!isFinal(job) && happened(job)',
    caughtBy: inFence('an input that was stored under an earlier claim is not stored again by it'),
  },
  {
    name: 'a job without its input is admitted',
    file: LEASE,
    find: ".where('state', 'in', ['ready', 'running'])",
    replace: '',
    caughtBy: inLeases('make accepted fetching, and stored input ready'),
  },
];

/** Not here: the state in the update that ends a job. Only an ending changes it from `running`. */
const ENDINGS: readonly Mutation[] = [
  {
    name: 'an old fence is not seen before a job ends',
    file: COMPLETION,
    find: ' || job.fence !== claim.fence) return false',
    replace: ') return false',
    caughtBy: inLeases('claimed anew by the same replica are void for its own earlier claim'),
  },
  {
    name: 'a stranger is not seen before a job ends',
    file: COMPLETION,
    find: 'job.lease?.holder !== claim.holder || ',
    replace: '',
    caughtBy: inFence('a job is ended by the holder of its lease alone'),
  },
  {
    name: 'the state is not checked before a job ends',
    file: COMPLETION,
    find: ' || !ending.from.includes(job.state)) return false',
    replace: ') return false',
    caughtBy: inEndings('a job that no node admitted cannot succeed'),
  },
  {
    name: 'a job succeeds that no node was given',
    file: COMPLETION,
    find: "SUCCEEDS_FROM: Job['state'][] = ['running'];",
    replace: "SUCCEEDS_FROM: Job['state'][] = ['accepted', 'fetching', 'ready', 'running'];",
    caughtBy: inEndings('a job that no node admitted cannot succeed'),
  },
  {
    name: 'a job is ended under a fence that was replaced meanwhile',
    file: COMPLETION,
    find: ".where('fence', '=', claim.fence)",
    replace: '',
    caughtBy: inFenceOnServer('an ending that is overtaken by its own replica ends nothing'),
  },
  {
    name: 'a job is ended under a lease that was given back meanwhile',
    file: COMPLETION,
    find: ".where('lease_holder', '=', claim.holder)",
    replace: '',
    caughtBy: inFenceOnServer('an ending whose lease is given back meanwhile ends nothing'),
  },
  {
    name: 'a credit is settled that another ending settled meanwhile',
    file: WRITER,
    find: ".where('reserved', '>=', CREDITS_PER_JOB)",
    replace: '',
    caughtBy: inFenceOnServer('of two endings that meet the second is told that it is none'),
  },
  {
    name: 'an ending that is said again is refused',
    file: COMPLETION,
    find: 'if (job.finishedAtMs !== null) return ending.happened(job);',
    replace: '',
    caughtBy: inEndings('success said twice is one success; another ending is refused'),
  },
  {
    name: 'another result is told that it is the one',
    file: COMPLETION,
    find: ' && job.result?.token === result.token',
    replace: '',
    caughtBy: inEndings('success said twice is one success; another ending is refused'),
  },
  {
    name: 'a job ends in several transactions',
    file: COMPLETION,
    find: 'transact(database, tx => finishIn(database, tx, options, claim, ending), giveUp)',
    replace: 'finishIn(database, database.kysely, options, claim, ending)',
    caughtBy: inEndings('a body that cannot be rendered leaves job and money as they were'),
  },
  {
    name: 'a failure keeps the credit',
    file: WRITER,
    find: "kind === 'release' ? CREDITS_PER_JOB : 0",
    replace: '0',
    caughtBy: inEndings('failure returns the credit from every open state, and is replayed'),
  },
  {
    name: 'a key is freed before its time is over',
    file: KEYS,
    find: 'nowPlusMs(database.nowMs, -rememberedMs)',
    replace: 'database.nowMs',
    caughtBy: inKeys('are kept while their time runs, and freed once it is over'),
  },
  {
    name: 'the key of an open job is freed, and the image paid for twice',
    file: KEYS,
    find: ".where('finished_at', 'is not', null)",
    replace: '',
    caughtBy: inKeys('are kept by an open job however old it is'),
  },
  {
    name: 'a key is freed under another name',
    file: KEYS,
    find: ".where('idempotency_key_hash', '=', idempotencyKeyHash)",
    replace: '',
    caughtBy: inKeys('are freed under their own name alone'),
  },
];

const MONEY_AND_KEYS: readonly Mutation[] = [
  {
    name: 'a job is made without a credit',
    file: WRITER,
    find: ".where('available', '>=', CREDITS_PER_JOB)",
    replace: '',
    caughtBy: inSubmission('refuses without a credit, and remembers nothing'),
  },
  {
    name: 'jobs in flight have no bound',
    file: WRITER,
    find: ".where('reserved', '<', reservedMax)",
    replace: '',
    caughtBy: inSubmission('refuses at the bound in flight, however many credits there are'),
  },
  {
    name: 'more is revoked than is there',
    file: WRITER,
    find: "kind === 'revoke', update",
    replace: "kind === 'grant', update",
    caughtBy: inLedger('revokes all of it or nothing, never below zero available'),
  },
  {
    name: 'a reference that was entered with another amount is taken for the same',
    file: LEDGER,
    find: 'earlier.amount !== entry.amount',
    replace: 'false',
    caughtBy: inLedger('grants once a reference, and says so when the amount differs'),
  },
  {
    name: 'a request that is said again is a second job or none',
    file: SUBMISSION,
    find: '(await findTwin(database, db, job)) ?? refused',
    replace: 'refused',
    caughtBy: inSubmission('finds the earlier job of a key and leaves the credits alone'),
  },
  {
    name: 'a submission whose answer was lost is taken for another',
    file: SUBMISSION,
    find: "found.id === job.id ? 'created' : 'exists'",
    replace: "'exists'",
    caughtBy: inSubmission('repeated by itself after a lost answer is the same success'),
  },
  {
    name: 'a retryable failure keeps the key',
    file: COMPLETION,
    find: '...(failure.retryable ? { idempotency_key_hash: null } : {}),',
    replace: '',
    caughtBy: inEndings('a retryable failure frees the key, and the next request is a new job'),
  },
  {
    name: 'every failure frees the key',
    file: COMPLETION,
    find: 'failure.retryable ? { idempotency_key_hash: null } : {}',
    replace: '{ idempotency_key_hash: null }',
    caughtBy: inEndings('failure returns the credit from every open state, and is replayed'),
  },
];

const AUDITS: readonly Mutation[] = [
  {
    name: 'an account is closed although a transaction may still write before the checkpoint',
    file: AUDIT,
    find: 'await awaitEarlierWriters(this.#database, this.#accountId);',
    replace: '',
    caughtBy: inAudit('waits for a transaction that may still write behind a checkpoint'),
  },
  {
    name: 'a checkpoint is set behind what is wrong, which no later check then sees',
    file: AUDIT,
    find: '!this.#clean || this.#isAhead',
    replace: 'this.#isAhead',
    caughtBy: inAudit(
      'names what is wrong each time until it is mended, and closes nothing behind it',
    ),
  },
  {
    name: 'a balance that contradicts its checkpoint is not looked into',
    file: AUDIT,
    find: 'verdict.agrees || checkpoint === NOTHING_CLOSED',
    replace: 'true',
    caughtBy: inBrokenLedger('a checkpoint is found by both while the balance is right'),
  },
];

const NOTIFICATIONS: readonly Mutation[] = [
  {
    name: 'a notification is claimed with a fence that was used',
    file: OUTBOX,
    find: ".where('fence', '=', fence - 1)",
    replace: '',
    caughtBy: inOutbox('a claim of a fence that was used is lost, the lease being free'),
  },
  {
    name: 'a notification is claimed while another sends it',
    file: OUTBOX,
    find: NOT_LEASED,
    replace: 'eb.and([])',
    caughtBy: inOutbox('a claim is lost while another holds the lease'),
  },
  {
    name: 'a notification is claimed before it is due',
    file: OUTBOX,
    find: ".where('next_attempt_at', '<=', nowMs)",
    replace: '',
    caughtBy: inOutbox('a claim is lost before the next attempt is due'),
  },
  {
    name: 'an attempt is ended by an earlier claim of the same replica',
    file: OUTBOX,
    find: ".where('fence', '=', fence)",
    replace: '',
    caughtBy: inOutbox('an earlier claim of the same replica ends nothing'),
  },
  {
    name: 'an attempt is ended by a stranger',
    file: OUTBOX,
    find: ".where('lease_holder', '=', holder)",
    replace: '',
    caughtBy: inOutbox('a holder that was never given the lease ends nothing'),
  },
];

const GROUP_COMMIT: readonly Mutation[] = [
  {
    name: 'a transaction is told that it is committed before it is',
    file: GROUP,
    find: 'this.execute(RELEASE);\n    } finally {\n      this.#leave();\n    }\n    await group?.committed.promise;',
    replace: 'this.execute(RELEASE);\n    } finally {\n      this.#leave();\n    }',
    caughtBy: inGroup('share one commit, and are told of it when others can see them'),
  },
  {
    name: 'a failure is told before what it failed by is durable',
    file: GROUP,
    find: 'this.#run(RELEASE);\n      }\n    } finally {\n      this.#leave();\n    }\n    await group?.committed.promise;',
    replace: 'this.#run(RELEASE);\n      }\n    } finally {\n      this.#leave();\n    }',
    caughtBy: inGroup('fail alone, after what they failed by is durable'),
  },
  {
    name: 'a transaction that fails keeps what it wrote',
    file: GROUP,
    find: 'this.#run(ROLLBACK_TO);',
    replace: '',
    caughtBy: inGroup('fail alone, after what they failed by is durable'),
  },
  {
    name: 'transactions are committed together without a bound',
    file: GROUP,
    find: ' || group.members >= COMMITTED_TOGETHER_MAX',
    replace: '',
    caughtBy: inGroup('are bounded in number, so that other processes get the lock'),
  },
  {
    name: 'a commit that failed is told as one that did not',
    file: GROUP,
    find: "group.committed.reject(error);\n      if (this.#connection.inTransaction) this.#connection.control('rollback');",
    replace:
      "group.committed.resolve();\n      if (this.#connection.inTransaction) this.#connection.control('rollback');",
    caughtBy: inGroup(
      'all fail where the commit does, the rolled-back ones too, and the next group stands',
    ),
  },
];

export const STORE_MUTATIONS: readonly Mutation[] = [
  ...CLAIMS,
  ...ENDINGS,
  ...MONEY_AND_KEYS,
  ...AUDITS,
  ...NOTIFICATIONS,
  ...GROUP_COMMIT,
];
