/**
 * What a node must know to follow a request, beyond what nodes of 0.2.0 know. A node lists what it
 * follows (GetNodeInfo.capabilities), and a control plane sends a job only to nodes that list what
 * the job needs.
 */
import type { Finishing } from './finishing.ts';
import type { Hints } from './hints.ts';

/** Each by the field of the REST interface that needs it, which a refusal names. */
const FIELDS = {
  'finishing.aspect_ratio': 'aspect_ratio',
  'finishing.background_original': 'background',
  'finishing.enlarge': 'enlarge',
  'finishing.quality': 'quality',
  'finishing.shadow': 'shadow',
  'hints.subject_box': 'subject_box',
  'hints.keep': 'keep',
  'hints.erase': 'erase',
  'hints.picture': 'hints_file',
  matte: 'correctable',
} as const;
export type Capability = keyof typeof FIELDS;
type FinishingCapability = Extract<Capability, `finishing.${string}`>;
export const CAPABILITIES = Object.keys(FIELDS) as readonly Capability[];

export function fieldOfCapability(capability: Capability): string {
  return FIELDS[capability];
}

export function capabilitiesOfFinishing(finishing: Finishing): readonly Capability[] {
  const { aspectRatio, background, enlarge, quality, shadow } = finishing;
  const needed: Readonly<Record<FinishingCapability, boolean>> = {
    'finishing.aspect_ratio': aspectRatio !== undefined,
    'finishing.background_original': background?.kind === 'original',
    'finishing.enlarge': enlarge !== undefined,
    'finishing.quality': quality !== undefined,
    'finishing.shadow': shadow !== undefined,
  };
  const known = Object.keys(needed) as FinishingCapability[];
  return known.filter(capability => needed[capability]);
}

export function capabilitiesOfHints(hints: Hints): readonly Capability[] {
  return [
    ...(hints.subjectBox === undefined ? [] : (['hints.subject_box'] as const)),
    ...(hints.keep === undefined ? [] : (['hints.keep'] as const)),
    ...(hints.erase === undefined ? [] : (['hints.erase'] as const)),
    ...(hints.picture === undefined ? [] : (['hints.picture'] as const)),
  ];
}
