/** What a node's own pages say, as far as a measurement needs it. */

/** A node that is kept full takes its time; one that hangs must not hold up what is measured. */
const PAGE_MAX_MS = 20_000;

/** Of one label, by its values; of all series where the label is not given. Pure. */
export function sumsBy(text: string, name: string, label?: string): ReadonlyMap<string, number> {
  const sums = new Map<string, number>();
  for (const line of text.split('\n')) {
    const [, series, labels = '', value] = /^(\w+)(?:\{(.*)\})? (\S+)$/.exec(line) ?? [];
    if (series !== name) continue;
    const key = new RegExp(`(?:^|,)${label}="([^"]*)"`).exec(labels)?.[1] ?? '';
    sums.set(key, (sums.get(key) ?? 0) + Number(value));
  }
  return sums;
}

/** Counted up since the node started. */
export interface NodeCounts {
  /** Seconds that each stage took, of all images. */
  readonly stageS: ReadonlyMap<string, number>;
  readonly images: number;
  /** Seconds that engines had images, of all. */
  readonly engineBusyS: number;
  readonly engines: number;
  readonly enginesReady: number;
  readonly imagesMax: number;
}

export async function readCounts(nodeHttpUrl: string): Promise<NodeCounts> {
  const text = await readPage(`${nodeHttpUrl}/metrics`);
  const sum = (name: string) => [...sumsBy(text, name).values()].reduce((all, one) => all + one, 0);
  return {
    stageS: sumsBy(text, 'matting_node_stage_duration_seconds_sum', 'stage'),
    images: sum('matting_node_image_duration_seconds_count'),
    engineBusyS: sum('matting_node_engine_busy_seconds_total'),
    engines: sum('matting_node_engines'),
    enginesReady: sum('matting_node_engines_ready'),
    imagesMax: sum('matting_node_images_max'),
  };
}

export async function readPage(url: string): Promise<string> {
  return await (await fetch(url, { signal: AbortSignal.timeout(PAGE_MAX_MS) })).text();
}
