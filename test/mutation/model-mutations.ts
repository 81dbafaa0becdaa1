/** These keep a picture from being made, and charged, by another model than the named one. */
import { mutationsOf } from './mutation.ts';

export const MODEL_MUTATIONS = mutationsOf`
file control-plane/core/submission/fingerprint.ts
tests control-plane/core/models/requests.test.ts
a key answers with the job of another model
  - if (model !== undefined) fields.push(['model', model]);
  = a key with another model, or none, is a conflict

file inference-node/serving/models/plan.ts
tests inference-node/serving/models/manifest.test.ts
a plan may have any name
  - if (!SELECTABLE_NAME.test(name)) {
  + if (name === undefined) {
  = a file of plans that is wrong is refused
a file may have any number of plans
  - if (plans.length > PLANS_MAX) {
  + if (plans.length === 0) {
  = a file of plans that is wrong is refused

file control-plane/core/nodes/fleet.ts
tests control-plane/core/models/dispatched.test.ts
a node makes what it has another sum of
  - link.offerModels(ofStandingSum(link.selectables, standing))
  + link.offerModels(link.selectables)
  = a node with another sum than most gets no job of that name

file control-plane/core/nodes/matte-client-call.ts
tests control-plane/core/models/dispatched.test.ts
the node is not told the sum
  - request.model?.sha256 ?? ''
  + ''
  = the header names a plan or a model, with its sum, and nothing where the request names none

file control-plane/core/dispatch/pick-node.ts
tests control-plane/core/dispatch/model-costs.test.ts: a job that names a model
jobs that name a model hold every place
  - if (isOther(node, needs) && !hasPlaceForOthers(node, needs)) return false;
  = others hold their half

file control-plane/core/nodes/node-view.ts
tests control-plane/core/dispatch/model-costs.test.ts: a job that names a model
a refusal of a model's engines keeps every picture away
  - if (held.other !== undefined) {
  + if (held.other === '') {
  = that is refused keeps its model away until the next report, and nothing else

file control-plane/core/dispatch/large-turns.ts
tests control-plane/core/dispatch/large-turns.test.ts
small images keep a large one from a node with little memory
  - return nodes.filter(({ nodeId }) => nodeId !== turn.nodeId);
  + return nodes;
  = an image that has waited for memory has the node for itself, until it begins
large images keep small ones from a node with little memory
  - this.#nextAtMs = nowMs + TURN_PAUSE_MS;
  + this.#nextAtMs = nowMs;
  = an image that has waited for memory has the node for itself, until it begins

file control-plane/core/nodes/attempt-outcome.ts
tests control-plane/core/nodes/verdict.test.ts
a model that a job names takes its node from all other jobs
  - return ofOther && ENGINE_FAULTS.has(outcome.error.code) ? undefined : 'fault';
  + return ofOther && ENGINE_FAULTS.has(outcome.error.code) ? 'fault' : 'fault';
  = engines of a model that a job names say nothing of the node, all else does

file inference-node/serving/engine/pool/engine.ts
tests inference-node/serving/engine/pool/added-engines.test.ts
an engine of an added model gets all memory that there is
  - dataBytesMax: bounds.dataBytesMax,
  + dataBytesMax: undefined,
  = a graph that wants gigabytes for a picture does not get them, and serves the next one
an engine keeps memory that nobody counts
  - if (keptBytes <= keptBytesMax) return undefined;
  + if (keptBytes >= 0) return undefined;
  = an engine that keeps more than is counted for it is restarted, and its picture is served
an image is told that the engine is lost where the model had no memory for it
  - return { cause: cause === 'run' && isOver ? 'memory' : cause, message, broken: false } as const;
  + return { cause: isOver ? cause : cause, message, broken: false } as const;
  = pictures of which an engine dies for want of memory are at fault, however many they are

file inference-node/serving/engine/child/form-ends.ts
tests inference-node/serving/engine/child/loaded-model.test.ts
a matte of any size is taken of a graph
  - requireAnswerSize(output);
  = an answer over the bound is refused, as it is in a probe

file inference-node/serving/engine/child/loaded-model.ts
tests inference-node/serving/engine/child/loaded-model.test.ts
what a graph does with a picture is the node's fault
  - if (this.#spec.form === undefined || !(await this.#answersCheckPicture())) throw error;
  + if (this.#spec.form === undefined || (await this.#answersCheckPicture())) throw error;
  = an error of a graph is the fault of the picture where the check picture is answered

file inference-node/serving/process/frame-reader.ts
tests inference-node/serving/process/frames.test.ts: frames
a child sends more than the bound of its answers
  - if (total > this.#partsBytesMax)
  + if (total > PARTS_BYTES_MAX)
  = a child whose answers are bounded sends no larger part

file inference-node/serving/selectables/load-turns.ts
tests inference-node/serving/selectables/load-turns.test.ts
a model whose images overlap keeps every other one from loading
  - leaving.some(set => sets
  + leaving.some(set => [set.model].includes(set) && sets
  = models whose images overlap give way to each other by turns
a load takes the memory that another one has its turn for
  - set.state === 'unloaded' && !sets.includes(set)
  + set.state !== 'unloaded' && !sets.includes(set)
  = models whose images overlap give way to each other by turns
a load that nobody wants any more keeps engines from their images
  - if (isWanted && nowMs < turn.endsAtMs) return turn;
  + if (nowMs < turn.endsAtMs) return turn;
  = a turn ends where nobody asks for the load any more, and where it lasts too long
engines are unloaded as soon as they are loaded
  - Math.max(SERVED_MS_MIN, loadMs)
  + 0
  = models whose images overlap give way to each other by turns

file inference-node/serving/selectables/idle-engines.ts
tests inference-node/serving/selectables/idle-engines.test.ts: engines of a small machine
engines of a small machine are opened beside those that have not gone
  - room: () => within(before),
  + room: () => within(Promise.resolve(before && undefined)),
  = wait for the last process of those before
`;
