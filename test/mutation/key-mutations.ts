/** API keys: ends, secrets, caps, and what a key may do. */
import { inFile, type Mutation } from './mutation.ts';

const KNOWN = 'control-plane/src/store/accounts/known-keys.ts';
const CAP = 'control-plane/src/store/accounts/key-cap.ts';
const CHANGES = 'control-plane/src/store/accounts/api-key-changes.ts';
const LISTS = 'control-plane/src/store/accounts/api-key-rows.ts';
const POLICY = 'control-plane/src/domain/account/key-policy.ts';
const ACCESS = 'control-plane/src/services/keys/key-access.ts';

const inPolicies = inFile(
  'control-plane/test/store/accounts/key-policies.test.ts',
  'policies of keys on sqlite',
);
const inHeldSubmissions = inFile(
  'control-plane/test/http/routes/held-submissions.test.ts',
  'a submission whose key changes meanwhile',
);
const MANAGE_TEST = 'control-plane/test/services/keys/manage-keys.test.ts';
const inRotation = inFile(MANAGE_TEST, 'a rotation');
const inCounts = inFile('control-plane/test/domain/key-policy.test.ts', 'the count of a cap');
const inHttp = inFile('control-plane/test/http/routes/key-policies.test.ts');
const EXPIRY = 'a key is refused from its expiry on, and told when that was';
const SECRETS =
  'two secrets go on while a key is rotated, each to its end, and no memory outlives one';
const RELEASED = 'what is released goes back to the cap, what is charged does not';
const RACE = 'a cap is kept to the credit by submissions that race at two replicas';

export const KEY_MUTATIONS: readonly Mutation[] = [
  {
    name: 'a submission goes by what its key was when its headers came',
    file: 'control-plane/src/services/submission/submit-matting.ts',
    find: 'const { policy } = await askAgain();',
    replace: 'const policy = undefined as { cap?: object } | undefined;',
    caughtBy: inHeldSubmissions('counts for a cap that the key was given: /v1/matting/jobs'),
  },
  {
    name: 'a key is not asked for after a name was looked up',
    file: 'control-plane/src/services/submission/submit-matting.ts',
    find: 'const { policy } = await askAgain();',
    replace: 'const policy = { cap: {} };',
    caughtBy: inHeldSubmissions(
      'makes no job by a key that was revoked while a name was looked up',
    ),
  },
  {
    name: 'an expired key is taken',
    file: KNOWN,
    find: 'is: leftMs > 0 ? owner : expired',
    replace: 'is: owner',
    caughtBy: inPolicies(EXPIRY),
  },
  {
    name: 'the old secret of a rotation never ends',
    file: KNOWN,
    find: 'previousLeftMs > 0 ? { ...owner, byPreviousSecret: true } : replaced',
    replace: '{ ...owner, byPreviousSecret: true }',
    caughtBy: inPolicies(SECRETS),
  },
  {
    name: 'a secret that was made a moment ago is unknown where the old one is remembered',
    file: KNOWN,
    find: "if (typeof recalled === 'object' && recalled.isFresh) return recalled.owner;",
    replace:
      "if (typeof recalled === 'object' && recalled.isFresh) return recalled.owner;\n    if (this.#remembered.has(parsed.id)) return 'unknown';",
    caughtBy: inPolicies(SECRETS),
  },
  {
    name: 'a memory outlives the old secret',
    file: KNOWN,
    find: 'previousLeftMs > 0 ? previousLeftMs : API_KEY_MEMORY_MS,',
    replace: 'API_KEY_MEMORY_MS,',
    caughtBy: inPolicies(SECRETS),
  },
  {
    name: 'a key of the service itself opens something',
    file: KNOWN,
    find: "\n        .where('purpose', 'is', null)",
    replace: '',
    caughtBy: inPolicies('a key of the service itself is in no list, and opens nothing'),
  },
  {
    name: 'a rotation keeps no old secret',
    file: CHANGES,
    find: "previous_secret_hash: eb.ref('secret_hash'),",
    replace: 'previous_secret_hash: null,',
    caughtBy: inRotation('within an overlap ends the oldest secret, and keeps the two others'),
  },
  {
    name: 'a rotation at once lets the old secret go on',
    file: CHANGES,
    find: 'nowPlusMs(database.nowMs, by.overlapMs)',
    replace: 'nowPlusMs(database.nowMs, by.overlapMs + 60_000)',
    caughtBy: inRotation('at once ends the old secret here and now, and says when'),
  },
  {
    name: 'another account’s key is found',
    file: LISTS,
    find: 'accountId === undefined || row.account_id === accountId',
    replace: 'true',
    caughtBy: inFile(MANAGE_TEST, 'another account')('sees none of it, and changes none of it'),
  },
  {
    name: 'a cap is a credit too high',
    file: POLICY,
    find: 'used + credits > cap.credits',
    replace: 'used + credits > cap.credits + 1',
    caughtBy: inPolicies(RACE),
  },
  {
    name: 'a cap counts nothing',
    file: CAP,
    find: 'cap_used: after.used',
    replace: 'cap_used: before.used',
    caughtBy: inPolicies(RACE),
  },
  {
    name: 'a released credit stays counted',
    file: 'control-plane/src/store/jobs/job-completion.ts',
    find: "ending.kind === 'release' && job.capWindowStartMs !== null",
    replace: 'job.capWindowStartMs === -1',
    caughtBy: inPolicies(RELEASED),
  },
  {
    name: 'a charged credit goes back to the cap',
    file: 'control-plane/src/store/jobs/job-completion.ts',
    find: "ending.kind === 'release' && job.capWindowStartMs !== null",
    replace: 'job.capWindowStartMs !== null',
    caughtBy: inPolicies(RELEASED),
  },
  {
    name: 'a credit goes back to a count that it was not in',
    file: CAP,
    find: "\n    .where('cap_window_start', '=', windowStartMs)",
    replace: '',
    caughtBy: inPolicies('what a job of another period counted for is not given back to this one'),
  },
  {
    name: 'a new cap goes on with the count of the one before',
    file: POLICY,
    find: 'if (before?.period === cap.period) return count;',
    replace: 'if (cap !== before) return count;',
    caughtBy: inCounts('is kept where only the credits of its cap change'),
  },
  {
    name: 'a key without the scope may',
    file: ACCESS,
    find: 'scopes !== undefined && !scopes.includes(scope)',
    replace: 'scopes?.length === 0',
    caughtBy: inHttp('scopes read alone opens what it names and nothing else'),
  },
  {
    name: 'a key may be used from anywhere',
    file: ACCESS,
    find: 'networks !== undefined && !isIpInNetworks(address, networks)',
    replace: 'networks?.length === 0',
    caughtBy: inHttp('networks let in who is in one of them, by the address of the connection'),
  },
  {
    name: 'what a key is refused is taken of the account’s rate',
    file: 'control-plane/src/http/checks/rate-limit.ts',
    find: "const ofKey = kind === 'submissions' ? policy?.submissionsPerMinute : undefined;",
    replace:
      "if (policy !== undefined) await rateLimits.take(accountId, kind);\n  const ofKey = kind === 'submissions' ? policy?.submissionsPerMinute : undefined;",
    caughtBy: inHttp(
      'a rate of its own refuses a key beyond it, and takes nothing of the account’s then',
    ),
  },
];
