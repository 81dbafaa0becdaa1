/**
 * Lists the contexts of intra slices of HEVC: where each begins, and its initial value (ITU-T
 * H.265, 9.3.2.2).
 */

const VALUES = {
  saoMerge: [153],
  saoType: [200],
  split: [139, 141, 157],
  bypass: [154],
  partition: [184],
  lumaPredicted: [184],
  chromaMode: [63],
  splitTransform: [153, 138, 138],
  lumaCoded: [111, 141],
  chromaCoded: [94, 138, 182, 154, 154],
  qpDelta: [154, 154],
  transformSkip: [139, 139],
  lastX: [110, 110, 124, 125, 140, 153, 125, 127, 140, 109, 111, 143, 127, 111, 79, 108, 123, 63],
  lastY: [110, 110, 124, 125, 140, 153, 125, 127, 140, 109, 111, 143, 127, 111, 79, 108, 123, 63],
  squareCoded: [91, 171, 134, 141],
  significance: [
    111, 111, 125, 110, 110, 94, 124, 108, 124, 107, 125, 141, 179, 153, 125, 107, 125, 141, 179,
    153, 125, 107, 125, 141, 179, 153, 125, 140, 139, 182, 182, 152, 136, 152, 136, 153, 136, 139,
    111, 136, 139, 111,
  ],
  greater1: [
    140, 92, 137, 138, 140, 152, 138, 139, 153, 74, 149, 92, 139, 107, 122, 152, 140, 179, 166, 182,
    140, 227, 122, 197,
  ],
  greater2: [138, 153, 136, 167, 152, 152],
} as const;

type Name = keyof typeof VALUES;

const names = Object.keys(VALUES) as Name[];

export const INITIAL_VALUES: readonly number[] = names.flatMap(name => VALUES[name]);

let next = 0;

/** The index of the first context of each. */
export const CONTEXTS = Object.fromEntries(
  names.map(name => {
    const first = next;
    next += VALUES[name].length;
    return [name, first];
  }),
) as Readonly<Record<Name, number>>;
