/**
 * What none of the nodes can do, in the words of the request's own field (docs/rest.md). Pure.
 *
 * A node's word counts from its report until it has been gone for the grace for missing nodes, so that a
 * restart refuses nothing; of a job that a node has refused after all, that node's word counts no more.
 */
import { ContractError, invalidParameter } from '#contract/errors.ts';
import { enlargingField } from '#contract/finishing/frame.ts';
import { IMAGE_PIXELS_MAX } from '#contract/limits.ts';
import {
  type AskedNeeds,
  type NodeAbility,
  SHORTFALLS,
  type Shortfall,
  shortfallOf,
} from './job-needs.ts';

/**
 * Undefined: some node can do it, there was none to ask, or nothing of the request is at fault.
 * @param nodes whose word counts
 * @param refusedBy boot ids of nodes that said they cannot do this job
 */
export function refusalOf(
  nodes: readonly NodeAbility[],
  needs: AskedNeeds,
  refusedBy: ReadonlySet<string> = new Set(),
): ContractError | undefined {
  let furthest = -1;
  for (const node of nodes) {
    const shortfall = shortfallOf(node, needs);
    if (shortfall === undefined && !refusedBy.has(node.bootId)) return undefined;
    const reached = shortfall === undefined ? SHORTFALLS.length : SHORTFALLS.indexOf(shortfall);
    furthest = Math.max(furthest, reached);
  }
  if (furthest < 0) return undefined;
  const shortfall = SHORTFALLS[furthest];
  return shortfall === undefined ? codecRefusal(needs) : ofShortfall(shortfall, needs);
}

const NO_NODE = 'no inference node of this service';

function ofShortfall(shortfall: Shortfall, needs: AskedNeeds): ContractError {
  const { inputFormat, pixels, outputFormat, finishing } = needs;
  switch (shortfall) {
    case 'input-format':
      return new ContractError('UNSUPPORTED_IMAGE_FORMAT', `${NO_NODE} reads ${inputFormat}`);
    case 'input-size':
      return new ContractError(
        'IMAGE_RESOLUTION_TOO_LARGE',
        `${NO_NODE} takes ${inputFormat} images of ${pixels} pixels`,
      );
    case 'output-format':
      return unsupportedOutput(`${NO_NODE} writes ${outputFormat}`);
    case 'output-size': {
      const least = finishing?.frame.least ?? pixels;
      return unsupportedOutput(`${NO_NODE} writes ${outputFormat} of ${least} pixels`);
    }
    case 'background': {
      const detail = `background: ${NO_NODE} reads ${finishing?.background?.inputFormat}`;
      return new ContractError('UNSUPPORTED_IMAGE_FORMAT', detail);
    }
    case 'memory':
      return memoryRefusal(needs);
  }
}

/** By what is largest of it. */
function memoryRefusal({ pixels, outputFormat, finishing }: AskedNeeds): ContractError {
  const wrong = `${NO_NODE} has the memory for`;
  const { frame, background, steps = {} } = finishing ?? {};
  const framePixels = frame?.most ?? 0;
  const ownPixels = pixels ?? IMAGE_PIXELS_MAX;
  if (background && background.pixels > Math.max(ownPixels, framePixels)) {
    return invalidParameter('background', `is too large: ${wrong} ${background.pixels} pixels`);
  }
  if (framePixels > ownPixels) {
    const field = enlargingField(steps);
    return invalidParameter(field, `is too large: ${wrong} a frame of ${framePixels} pixels`);
  }
  const detail = `${wrong} an image of ${ownPixels} pixels as ${outputFormat}`;
  return new ContractError('IMAGE_RESOLUTION_TOO_LARGE', detail);
}

/** Every node says that it can, and none could with this picture: a codec that only some have. */
function codecRefusal({ inputFormat, outputFormat }: AskedNeeds): ContractError | undefined {
  const detail = `${NO_NODE} could do this with this image`;
  if (outputFormat === 'jxl') return unsupportedOutput(detail);
  if (inputFormat === 'jxl') return new ContractError('UNSUPPORTED_IMAGE_FORMAT', detail);
  return undefined;
}

function unsupportedOutput(detail: string): ContractError {
  const fieldErrors = [{ field: 'output_format', detail }];
  return new ContractError('UNSUPPORTED_OUTPUT_FORMAT', detail, { fieldErrors });
}

/** Looks in a grace: nodes report more often than this needs to know. */
const LOOKS_IN_GRACE = 60;

interface AdvertisedNodesOptions {
  /** Those that are routable now. */
  readonly routable: () => readonly NodeAbility[];
  readonly graceMs: number;
  /** Milliseconds of a clock that never goes back. */
  readonly now: () => number;
}

/**
 * What nodes have said lately that they can do: those that are routable, and those that were within
 * the grace for missing nodes, so that a restart of the only one with a codec refuses nothing. Each
 * replica has its own view; the clock is handed in.
 */
export class AdvertisedNodes {
  readonly #options: AdvertisedNodesOptions;
  readonly #startedAtMs: number;
  /** By boot: as many as were routable within the grace. */
  readonly #seen = new Map<string, { readonly node: NodeAbility; readonly atMs: number }>();
  #lookedAtMs = Number.NEGATIVE_INFINITY;

  constructor(options: AdvertisedNodesOptions) {
    this.#options = options;
    this.#startedAtMs = options.now();
  }

  /** Nodes came, went or reported. */
  changed(): void {
    const { graceMs, now } = this.#options;
    if (now() - this.#lookedAtMs >= graceMs / LOOKS_IN_GRACE) this.#look();
  }

  /** Undefined within the first grace of this replica: it cannot know yet who was there. */
  nodes(): readonly NodeAbility[] | undefined {
    const { graceMs, now } = this.#options;
    if (now() - this.#startedAtMs <= graceMs) return undefined;
    this.#look();
    return [...this.#seen.values()].map(({ node }) => node);
  }

  #look(): void {
    const { routable, graceMs, now } = this.#options;
    const nowMs = now();
    this.#lookedAtMs = nowMs;
    for (const node of routable()) this.#seen.set(node.bootId, { node, atMs: nowMs });
    for (const [bootId, { atMs }] of this.#seen) {
      if (nowMs - atMs > graceMs) this.#seen.delete(bootId);
    }
  }
}
