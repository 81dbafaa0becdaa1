/** What keeps a picture from being made, and charged, by another model than the one that was named. */
import { mutationsOf } from './mutation.ts';

export const MODEL_MUTATIONS = mutationsOf`
file control-plane/core/submission/pictures.ts
tests control-plane/core/models/requests.test.ts
a key answers with the job of another model
  - if (model !== undefined) fields.push(['model', model]);
  = a key with another model, or none, is a conflict

file control-plane/core/nodes/fleet.ts
tests control-plane/core/models/dispatched.test.ts
a node makes what it has another sum of
  - link.offerModels(ofStandingSum(link.selectables, standing))
  + link.offerModels(link.selectables)
  = a node with another sum than most gets no job of that name

file control-plane/core/nodes/matte-exchange.ts
tests control-plane/core/models/dispatched.test.ts
the node is not told the sum
  - request.model?.sha256 ?? ''
  + ''
  = the header names a plan or a model, with its sum, and nothing where the request names none

file control-plane/core/dispatch/dispatch-policy.ts
tests control-plane/core/dispatch/model-costs.test.ts: a job that names a model
jobs that name a model hold every place
  - if (isOther(node, needs) && !hasPlaceForOthers(node, needs)) return false;
  = others hold their half
a refusal of a model's engines keeps every picture away
  - if (held.other !== undefined) {
  + if (held.other === '') {
  = that is refused keeps its model away until the next report, and nothing else

file inference-node/serving/selectables/idle-engines.ts
tests inference-node/serving/selectables/idle-engines.test.ts: engines of a small machine
engines of a small machine are opened beside those that have not gone
  - room: () => within(before),
  + room: () => within(Promise.resolve(before && undefined)),
  = wait for the last process of those before
`;
