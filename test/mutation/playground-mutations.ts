/** The playground: what keeps its jobs off credits, and behind what is paid for. */
import { mutationsOf } from './mutation.ts';

export const PLAYGROUND_MUTATIONS = mutationsOf`
file control-plane/portal/jobs/account-jobs.ts
tests control-plane/portal/test/attacks/every-route.test.ts: who may
a person sees another account's job by its id
  - if (job?.accountId !== accountId) return undefined;
  + if (job === undefined) return undefined;
  = what another account has does not exist for a owner

file control-plane/portal/jobs/job-pages.ts
tests control-plane/portal/jobs/work.test.ts: jobs
a viewer gets a preview
  - if (!may(role, 'results.read')) {
  + if (false) {
  = show one with its stages, and its result to those who may see results

file control-plane/portal/playground/use-playground.ts
tests control-plane/portal/playground/playground.test.ts: the playground
a file is taken before the form has shown its token
  - if (!this.#trusted) throw new PageError('staleForm');
  -     const known
  + const known
  = takes no byte of a file before the form has shown its token
the playground takes fields of the API that it has not
  - if (!known.includes(name)) throw unknownField(name);
  = takes no field that the form has not

file control-plane/core/submission/submit-matting.ts
tests control-plane/portal/playground/playground.test.ts: the playground
the playground is open where what is paid for needs the room
  - : acceptance.requireRoom());
  + : undefined);
  = is refused where what is paid for needs the room, and counts nothing

file control-plane/core/transactions/job-completion.ts
tests control-plane/portal/playground/allowance.test.ts: the playground on sqlite
a job of the playground is ended with a credit
  - if (settled.unpaidDayMs !== null) {
  + if (settled.unpaidDayMs === 0) {
  = writes no ledger entry and moves no balance, however a job ends

file control-plane/portal/settled-steps.ts
tests control-plane/portal/playground/allowance.test.ts: the playground on sqlite
a failure of the picture gives it back
  - if (unpaidDayMs !== null && retryable) await
  + if (unpaidDayMs !== null) await
  = counts the pictures of a day, and gives back what failed by no fault of theirs

file control-plane/portal/playground/playground-store.ts
tests control-plane/portal/playground/allowance.test.ts: the playground on sqlite
the allowance has no bound
  - .where(eb => eb.or([eb('day_at', '<', day), eb('used', '<', imagesMax)]))
  = passes no allowance, however many ask two replicas at once
a clock set back begins a day anew
  - eb('day_at', '<', day)
  + eb('day_at', '<>', day)
  = counts each day anew, and none twice where the clock is set back
what is given back of yesterday counts for today
  - .where('day_at', '=', dayMs)
  = counts each day anew, and none twice where the clock is set back
a picture that is refused is counted
  - await giveImageBack(tx, accountId, row.day_at);
  = takes few open jobs of an account, and counts none of those it refuses

file control-plane/core/dispatch/dispatch-core.ts
tests control-plane/core/dispatch/dispatch-core.test.ts: an unpaid job
an unpaid job begins while one that is paid for waits
  - if (isUnpaid(job) && (this.nodesAwaited || !this.#hasUnpaidSlot())) return NOTHING;
  + if (isUnpaid(job) && !this.#hasUnpaidSlot()) return NOTHING;
  = waits while any that is paid for waits for a node, however old it is
unpaid jobs hold every slot
  - return held < Math.max(1, Math.floor(places * UNPAID_SLOTS_SHARE));
  + return held < places;
  = leaves three places in four to what is paid for

file control-plane/core/dispatch/fair-order.ts
tests control-plane/core/dispatch/job-turns.test.ts: orderJobs
an unpaid job ages past what is paid for
  - (isUnpaid(job) ? unpaid : paid).push(job);
  + paid.push(job);
  = puts unpaid jobs behind all others, however old

file control-plane/core/dispatch/known-lanes.ts
tests control-plane/core/dispatch/job-turns.test.ts: chooseLanes
lanes of unpaid jobs are read before those of paid ones
  - const group = isUnpaid(lane) ? 2 : isUrgent ? 0 : 1;
  + const group = isUrgent ? 0 : 1;
  = reads no lane of unpaid jobs while one that is paid for is left out
`;
