/** These guard what an image gives back in a node, and that each stage hears of a gone caller. */
import { mutationsOf } from './mutation.ts';

export const NODE_MUTATIONS = mutationsOf`
file inference-node/serving/pipeline.ts
tests inference-node/serving/pipeline.test.ts: a caller that goes away
an image waits for a load for a caller that is gone
  - await raceAbort(ready(), signal);
  + await ready();
  = in load is heard there, and everything comes back
an image waits for a worker for a caller that is gone
  - this.#pictures.acquire(order.priority, signal),
  + this.#pictures.acquire(order.priority, new AbortController().signal),
  = in acquire is heard there, and everything comes back
an image is decoded for a caller that is gone
  - lease.decode({ file, declared, modelInputs, background }, signal),
  + lease.decode({ file, declared, modelInputs, background }, new AbortController().signal),
  = in decode is heard there, and everything comes back
engines run for a caller that is gone
  - await runPlan(order, inputs, signal);
  + await runPlan(order, inputs, new AbortController().signal);
  = in infer is heard there, and everything comes back
a result is encoded for a caller that is gone
  - await lease.finish({ mattes, ...choices }, signal);
  + await lease.finish({ mattes, ...choices }, new AbortController().signal);
  = in finish is heard there, and everything comes back

file inference-node/serving/pipeline.ts
tests inference-node/serving/pipeline.test.ts: an error
a worker comes back from an image that ended well alone
  - const pixels = await this.#pixelStages(order, files, lease, exchange, signal).finally(() => {
  -       // Before the result is sent: a slow reader must not occupy a worker.
  -       lease.release();
  -       this.#workedOnSinceMs.delete(order);
  -     });
  + const pixels = await this.#pixelStages(order, files, lease, exchange, signal);
  +     lease.release();
  +     this.#workedOnSinceMs.delete(order);
  = in decode is what the caller hears, and everything comes back

file inference-node/model-tools/preparing/prepare.ts
tests inference-node/model-tools/preparing/prepared-bytes.test.ts
a pass is gone, and caches keep what it wrote
  - ...(precision === 'fp16' ? [] : [widen]),
  = a revision writes the same bytes for ever, so a change of the passes has another number

file inference-node/serving/grpc/matte-handler.ts
tests inference-node/serving/grpc/matte-handler.test.ts: an error of a stage
a permit comes back from an image that ended well alone
  - return timings;
  -     } finally {
  -       leave();
  -       permit.release();
  + permit.release();
  +       return timings;
  +     } finally {
  +       leave();
  = goes out by its code, without its secrets, and frees everything
`;
