/**
 * Fields and messages that nodes of 0.2.0 lack. A node lists those it supports
 * (GetNodeInfo.capabilities), and a control plane sends it only jobs that need no others.
 */
import { CAPABLE_FIELDS, type CapableField, propertyOf } from './finishing/table.ts';
import type { Finishing } from './finishing.ts';
import type { Hints } from './hints.ts';
import { MESSAGE_BYTES_SMALL } from './limits.ts';

/** With the REST field that a refusal names. */
const FIELDS = {
  'finishing.background_original': 'background',
  'hints.subject_box': 'subject_box',
  'hints.keep': 'keep',
  'hints.erase': 'erase',
  'hints.picture': 'hints_file',
  'hints.many_points': 'keep',
  matte: 'correctable',
  crop_run: 'keep',
} as const;
export type Capability = keyof typeof FIELDS | `finishing.${CapableField}`;
export const CAPABILITIES = [
  ...CAPABLE_FIELDS.map(field => `finishing.${field}`),
  ...Object.keys(FIELDS),
] as readonly Capability[];

export function fieldOfCapability(capability: Capability): string {
  return Object.hasOwn(FIELDS, capability)
    ? FIELDS[capability as keyof typeof FIELDS]
    : capability.slice('finishing.'.length);
}

export function capabilitiesOfFinishing(finishing: Finishing): readonly Capability[] {
  const own = CAPABLE_FIELDS.filter(field => finishing[propertyOf(field)] !== undefined);
  const needed = own.map((field): Capability => `finishing.${field}`);
  if (finishing.background?.kind === 'original') needed.push('finishing.background_original');
  // A refusal names the first.
  return needed.sort();
}

/** Largest rest of a header, and of a shape without its points. */
const HEADER_REST_BYTES_MAX = 1024;
const SHAPE_BYTES_MAX = 32;
const POINT_BYTES = 8;

/** True: the header may not fit into MESSAGE_BYTES_SMALL. */
function areMany({ keep = [], erase = [] }: Hints): boolean {
  const bytes = [...keep, ...erase].map(
    shape => SHAPE_BYTES_MAX + ('line' in shape ? POINT_BYTES * shape.line.length : 0),
  );
  return bytes.reduce((sum, each) => sum + each, 0) > MESSAGE_BYTES_SMALL - HEADER_REST_BYTES_MAX;
}

export function capabilitiesOfHints(hints: Hints): readonly Capability[] {
  return [
    ...(hints.subjectBox === undefined ? [] : (['hints.subject_box'] as const)),
    ...(hints.keep === undefined ? [] : (['hints.keep'] as const)),
    ...(hints.erase === undefined ? [] : (['hints.erase'] as const)),
    ...(hints.picture === undefined ? [] : (['hints.picture'] as const)),
    ...(areMany(hints) ? (['hints.many_points'] as const) : []),
  ];
}
