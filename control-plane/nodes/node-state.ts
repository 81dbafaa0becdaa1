/**
 * Whether some replica would send a node an image, and if not, why.
 *
 * | state       | its lease | the replicas' view of this boot                                 |
 * |-------------|-----------|-----------------------------------------------------------------|
 * | live        | valid     | at least one would send it an image                             |
 * | joining     | valid     | none has reached it or failed to, yet                           |
 * | unready     | valid     | at least one reaches it; it takes no image for now              |
 * | unreachable | valid     | none reaches it                                                 |
 * | draining    | valid     | any: the operator drained it                                    |
 * | silent      | expired   | any                                                             |
 * | gone        | ended     | any                                                             |
 *
 * A killed node could not end its lease. It is gone, too, once another node has registered at its
 * address after its last heartbeat.
 */
import type { NodeMember } from './node-store.ts';
import type { Sighting, Sightings } from './sighting-store.ts';

export type NodeState =
  | 'live'
  | 'joining'
  | 'unready'
  | 'unreachable'
  | 'draining'
  | 'silent'
  | 'gone';

export interface SeenMember {
  readonly member: NodeMember;
  readonly state: NodeState;
  /** Why replicas send it no images, in words, even if others do. null: no cause. */
  readonly cause: string | null;
  /** Only of the registered boot. */
  readonly sightings: readonly Sighting[];
}

export function seenMembers(
  members: readonly NodeMember[],
  { all }: Pick<Sightings, 'all'>,
): readonly SeenMember[] {
  const byNode = Map.groupBy(all, ({ nodeId }) => nodeId);
  return withReplacedGone(members).map(member => {
    const known = member.live ? (byNode.get(member.nodeId) ?? []) : [];
    const sightings = known.filter(({ bootId }) => bootId === member.bootId);
    const state = stateOf(member, sightings);
    return { member, state, cause: causeOf(state, sightings), sightings };
  });
}

function withReplacedGone(members: readonly NodeMember[]): readonly NodeMember[] {
  const live = members.filter(member => member.live);
  const byAddress = Map.groupBy(live, ({ address }) => address);
  return members.map(member => {
    const isReplaced = byAddress.get(member.address)?.some(({ nodeId, registeredAtMs }) => {
      return nodeId !== member.nodeId && registeredAtMs > member.heartbeatAtMs;
    });
    return isReplaced ? { ...member, live: false, gone: true } : member;
  });
}

function stateOf({ gone, live, draining }: NodeMember, sightings: readonly Sighting[]): NodeState {
  if (gone) return 'gone';
  if (!live) return 'silent';
  if (draining) return 'draining';
  if (sightings.length === 0) return 'joining';
  if (sightings.some(({ state }) => state === 'serving')) return 'live';
  return sightings.every(({ state }) => state === 'unreachable') ? 'unreachable' : 'unready';
}

function causeOf(state: NodeState, sightings: readonly Sighting[]): string | null {
  if (state === 'joining') return 'no control plane has called it yet';
  const whole = sightings.length;
  const counts = new Map<string, number>();
  for (const { state: seen, cause } of sightings) {
    // A drained node always reports `draining`, which adds nothing to its state.
    if (cause === null || (state === 'draining' && seen === 'draining')) continue;
    counts.set(cause, (counts.get(cause) ?? 0) + 1);
  }
  const causes = [...counts].map(([cause, count]) =>
    count === whole ? cause : `${cause} (as ${count} of ${whole} control planes see it)`,
  );
  return causes.length === 0 ? null : causes.join('; ');
}
