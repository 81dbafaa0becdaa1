/** The playground: what keeps its jobs off credits, and behind what is paid for. */
import { inFile, type Mutation } from './mutation.ts';

const STORE = 'control-plane/src/store/jobs/playground-store.ts';
const CORE = 'control-plane/src/domain/dispatch/dispatch-core.ts';
const TURNS = 'control-plane/src/domain/dispatch/job-turns.ts';

const inStore = inFile(
  'control-plane/test/store/jobs/playground-store.test.ts',
  'the playground on sqlite',
);
const inCore = inFile(
  'control-plane/test/domain/dispatch/dispatch-core.test.ts',
  'a job of the playground',
);
const TURNS_TEST = 'control-plane/test/domain/dispatch/job-turns.test.ts';
const inOrder = inFile(TURNS_TEST, 'orderJobs');
const inLanes = inFile(TURNS_TEST, 'chooseLanes');
const SEVERAL = 'writes no ledger entry and moves no balance, however a job ends';
const COUNTED = 'counts the pictures of a day, and gives back what failed by no fault of theirs';

const inJobs = inFile('control-plane/test/http/account/jobs.test.ts', 'the pages of jobs');
const inPages = inFile('control-plane/test/http/account/playground.test.ts', 'the playground');
const inMatrix = inFile(
  'control-plane/test/http/account/attacks/access-matrix.test.ts',
  'who may do what',
);
const FORM = 'control-plane/src/http/account/playground-form.ts';

/** What stands between an account's pictures and everybody else. */
const PAGES: readonly Mutation[] = [
  {
    name: "a person sees another account's job by its id",
    file: 'control-plane/src/services/account-jobs/account-jobs.ts',
    find: 'if (job?.accountId !== accountId) return undefined;',
    replace: 'if (job === undefined) return undefined;',
    caughtBy: inMatrix('what another account has does not exist for a owner'),
  },
  {
    name: 'a viewer gets a preview',
    file: 'control-plane/src/http/account/jobs.ts',
    find: "if (!may(role, 'results.read')) {",
    replace: 'if (false) {',
    caughtBy: inJobs('show one with its stages, and its result to those who may see results'),
  },
  {
    name: 'a file is taken before the form has shown its token',
    file: FORM,
    find: "if (!this.#trusted) throw new PageError('staleForm');\n    const known",
    replace: 'const known',
    caughtBy: inPages('takes no byte of a file before the form has shown its token'),
  },
  {
    name: 'the playground takes fields of the API that it has not',
    file: FORM,
    find: 'if (!known.includes(name)) throw unknownField(name);',
    replace: '',
    caughtBy: inPages('takes no field that the form has not'),
  },
  {
    name: 'the playground is open where what is paid for needs the room',
    file: 'control-plane/src/services/submission/submit-matting.ts',
    find: ': acceptance.requireRoom());',
    replace: ': undefined);',
    caughtBy: inPages('is refused where what is paid for needs the room, and counts nothing'),
  },
];

export const PLAYGROUND_MUTATIONS: readonly Mutation[] = [
  ...PAGES,
  {
    name: 'a job of the playground is ended with a credit',
    file: 'control-plane/src/store/jobs/job-completion.ts',
    find: 'if (playgroundDayMs !== null) {',
    replace: 'if (playgroundDayMs === 0) {',
    caughtBy: inStore(SEVERAL),
  },
  {
    name: 'the allowance has no bound',
    file: STORE,
    find: ".where(eb => eb.or([eb('day_at', '<', day), eb('used', '<', imagesMax)]))",
    replace: '',
    caughtBy: inStore('passes no allowance, however many ask two replicas at once'),
  },
  {
    name: 'a clock set back begins a day anew',
    file: STORE,
    find: "eb('day_at', '<', day)",
    replace: "eb('day_at', '<>', day)",
    caughtBy: inStore('counts each day anew, and none twice where the clock is set back'),
  },
  {
    name: 'a failure of the picture gives it back',
    file: 'control-plane/src/store/jobs/job-completion.ts',
    find: 'if (ending.retryable) await giveImageBack',
    replace: "if (ending.kind === 'release') await giveImageBack",
    caughtBy: inStore(COUNTED),
  },
  {
    name: 'what is given back of yesterday counts for today',
    file: STORE,
    find: ".where('day_at', '=', dayMs)\n",
    replace: '\n',
    caughtBy: inStore('counts each day anew, and none twice where the clock is set back'),
  },
  {
    name: 'a picture that is refused is counted',
    file: STORE,
    find: 'await giveImageBack(tx, accountId, row.day_at);',
    replace: '',
    caughtBy: inStore('takes few open jobs of an account, and counts none of those it refuses'),
  },
  {
    name: 'a job of the playground begins while one that is paid for waits',
    file: CORE,
    find: 'if (isUnpaid(job) && (this.#nodesAwaited || !this.#hasPlaygroundPlace())) return NOTHING;',
    replace: 'if (isUnpaid(job) && !this.#hasPlaygroundPlace()) return NOTHING;',
    caughtBy: inCore('waits while any that is paid for waits for a node, however old it is'),
  },
  {
    name: 'jobs of the playground hold every place',
    file: CORE,
    find: 'return held < Math.max(1, Math.floor(places * PLAYGROUND_PLACES_SHARE));',
    replace: 'return held < places;',
    caughtBy: inCore('leaves three places in four to what is paid for'),
  },
  {
    name: 'a job of the playground ages past what is paid for',
    file: TURNS,
    find: "(job.class === 'playground' ? unpaid : paid).push(job);",
    replace: 'paid.push(job);',
    caughtBy: inOrder('puts the playground behind all others, however old'),
  },
  {
    name: 'lanes of the playground are read before those that are paid for',
    file: TURNS,
    find: "const group = lane.class === 'playground' ? 2 : isUrgent ? 0 : 1;",
    replace: 'const group = isUrgent ? 0 : 1;',
    caughtBy: inLanes('reads no lane of the playground while one that is paid for is left out'),
  },
];
