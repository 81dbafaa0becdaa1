import type { NodeSnapshot } from '@matting/nodes/node-view.ts';
import type { Capacity, QueuedJob } from '@matting/queue/dispatch-core.ts';
import { needsDownload } from '@matting/queue/job.ts';
import type { JobMemory } from '@matting/queue/job-memories.ts';
import type { JobInput } from '../jobs/job-request.ts';
import { admittedMegapixels, type JobNeeds, needsOf, type ProcessingOptions } from './job-needs.ts';
import { fleetRefusalOf } from './node-refusals.ts';
import { NodeReservation } from './node-reservation.ts';
import { isIncapable, pickNode, settleCropRun } from './pick-node.ts';

export type PlaceableJob = QueuedJob &
  Omit<ProcessingOptions, 'correctable'> & {
    readonly input: Pick<JobInput, 'format' | 'width' | 'height'> | null;
  };

interface NodeCapacityOptions<Offer> {
  snapshots(): readonly NodeSnapshot[];
  offer(
    node: NodeSnapshot,
    needs: { megapixels: number; waitMsMax: number; model: string | undefined; cropRun: boolean },
  ): Offer | undefined;
  readonly random: () => number;
  readonly now: () => number;
}

type Memory = Readonly<JobMemory> | undefined;
type ModelChoice = Pick<ProcessingOptions, 'model' | 'correction'>;

export function isEngineBound({ model, correction }: ModelChoice): boolean {
  return (model !== undefined && model !== null) || correction?.cropRun !== undefined;
}

export class NodeCapacity<Offer> implements Capacity<PlaceableJob, JobNeeds, Offer> {
  readonly #options: NodeCapacityOptions<Offer>;
  readonly #reservation = new NodeReservation();
  readonly isEngineBound = isEngineBound;

  constructor(options: NodeCapacityOptions<Offer>) {
    this.#options = options;
  }

  slots(job?: ModelChoice | 'unbound'): { readonly all: number; readonly free: number } {
    const name = job === 'unbound' ? undefined : (job?.model ?? job?.correction?.cropRun?.model);
    let [all, free] = [0, 0];
    for (const node of this.#options.snapshots()) {
      if (job && !(name === undefined ? !node.onlyByName : node.models?.has(name))) continue;
      all += Math.max(0, node.imagesFree) + node.imagesInFlight;
      free += Math.max(0, node.imagesFree);
    }
    return { all, free };
  }

  take(
    job: PlaceableJob,
    memory: Memory,
    jobNeeds = needsOfRow(job),
  ): { offer?: Offer | undefined; wakeInMs?: number | undefined } {
    const { random, now } = this.#options;
    const snapshots = this.#options.snapshots();
    const nowMs = now();
    const { needs, excludedBoots } = settleCropRun(snapshots, jobNeeds, nowMs, memory);
    const choice = pickNode(this.#reservation.nodesFor(job.id, snapshots), needs, {
      excludedBoots,
      avoidedNodes: memory?.avoidedNodes,
      random,
      nowMs,
      waitedMs: job.readAtMs - job.createdAtMs,
    });
    if (choice.kind === 'busy') return { wakeInMs: choice.retryInMs };
    if (choice.kind !== 'picked') return {};
    const { node, waitMsMax } = choice;
    const { model, capabilities } = needs;
    const cropRun = capabilities?.includes('crop_run') ?? false;
    const megapixels = admittedMegapixels(needs);
    return { offer: this.#options.offer(node, { megapixels, waitMsMax, model, cropRun }) };
  }

  incapable(job: PlaceableJob, memory: Memory): (() => string) | undefined {
    const nodes = this.#options.snapshots();
    const needs = needsOfRow(job);
    const excludedBoots = memory?.excludedBoots;
    if (!isIncapable(nodes, needs, excludedBoots)) return undefined;
    return () =>
      fleetRefusalOf(nodes, needs, excludedBoots)?.message ??
      'No inference node can process this image.';
  }

  reserveNode(ordered: readonly PlaceableJob[], memoryOf: (jobId: string) => Memory): void {
    const nowMs = this.#options.now();
    const snapshots = this.#options.snapshots();
    const waiting = ordered
      .filter(job => !needsDownload(job))
      .map(job => {
        const settled = settleCropRun(snapshots, needsOfRow(job), nowMs, memoryOf(job.id));
        return { jobId: job.id, waitedMs: job.readAtMs - job.createdAtMs, ...settled };
      });
    this.#reservation.reserve(waiting, snapshots, nowMs);
  }

  began(jobId: string): void {
    this.#reservation.began(jobId, this.#options.now());
  }
}

function needsOfRow(job: PlaceableJob): JobNeeds {
  if (job.input === null) throw new Error(`job ${job.id} is ready without its image`);
  return needsOf(job.input, job);
}
