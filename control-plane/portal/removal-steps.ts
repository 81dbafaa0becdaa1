/** What the sweeper removes of the portal's once it is over: each step a page of old rows. */

import { removalStep, type SweepStep } from '../core/retention/sweep.ts';
import type { PortalStores } from './portal-stores.ts';

export function portalRemovalSteps({
  alerts,
  people,
  usage,
}: Pick<PortalStores, 'alerts' | 'people' | 'usage'>): SweepStep[] {
  return [
    removalStep('old usage', size => usage.removeOld(size)),
    removalStep('old counts of messages', size => alerts.removeOldCounts(size)),
    removalStep('ended sessions', size => people.removeEndedSessions(size)),
    removalStep('old links', size => people.removeOldLinks(size)),
    removalStep('old failures of sign-in', size => people.removeOldThrottles(size)),
  ];
}
