/** The remove.bg interface: one job and one charge for the same request, and nothing refused unsaid. */
import { mutationsOf } from './mutation.ts';

export const REMOVEBG_MUTATIONS = mutationsOf`
file control-plane/core/submission/submit-matting.ts
tests control-plane/test/compose/replicas.test.ts: two replicas on sqlite › remove.bg
a job whose time is over answers for ever
  - if (!isForgotten(job, rememberedMs)) return job;
  + if (rememberedMs >= 0) return job;
  = replays for ten minutes, then makes one new job of requests on both replicas

file control-plane/core/submission/pictures.ts
tests control-plane/test/compose/replicas.test.ts: two replicas on sqlite › remove.bg
the derived key forgets what was asked for
  - apiKeyId: string, fingerprint: string): string {
  + apiKeyId: string, fingerprint: string): string {
  +   fingerprint = '';
  = makes jobs of their own for other parameters, other keys, and other interfaces

file control-plane/removebg/removebg-body.ts
tests control-plane/removebg/removebg.test.ts: the answer
an empty field counts as a source
  - if (target.kind !== 'text' || this.#isEmpty) return;
  + if (target.kind !== 'text') return;
  = is made of what is not empty: clients send every field they know

file control-plane/removebg/removebg-errors.ts
tests control-plane/removebg/removebg.test.ts: an error of the remove.bg interface
a failure that may pass is told as the picture’s fault
  - return retryable
  + return !retryable
  = of a job: PROCESSING_FAILED, every attempt was lost, is processing_failed

file control-plane/core/nodes/matte-exchange.ts
tests control-plane/test/compose/replicas.test.ts: two replicas on sqlite › remove.bg
an image that a node refuses for what was asked is tried on every node
  - 'INVALID_PARAMETER',
  = takes a region that the node finds empty for the request’s fault, and asks no other
`;
