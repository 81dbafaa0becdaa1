import type { Database } from '@matting/database/database.ts';
import { alertSettings } from './alerts/alert-settings.ts';
import { createAlertStore } from './alerts/alert-store.ts';
import { expiryNoticeStore } from './alerts/key-expiry-notices.ts';
import { createOrderStore } from './orders/order-store.ts';
import { createLinkStore } from './people/link-store.ts';
import { createPeopleStore } from './people/people-store.ts';
import { createPlaygroundStore } from './playground/playground-store.ts';
import { createEndedOperatorSessions } from './session/ended-operator-sessions.ts';
import { createSessionStore } from './session/session-store.ts';
import { createIdentityStore } from './sign-in/identity-entry.ts';
import { peopleRetention } from './sign-in/people-retention.ts';
import { createSignInThrottleStore } from './sign-in/sign-in-throttle.ts';
import { createUsageStore } from './usage/usage-store.ts';
import './tables.ts';

export type PortalStores = ReturnType<typeof createPortalStores>;

export function createPortalStores(database: Database) {
  return {
    alerts: createAlertStore(database),
    alertSettings: alertSettings(database),
    endedOperatorSessions: createEndedOperatorSessions(database),
    expiryNotices: expiryNoticeStore(database),
    identities: createIdentityStore(database),
    links: createLinkStore(database),
    orders: createOrderStore(database),
    people: { ...createPeopleStore(database), ...peopleRetention(database) },
    playground: createPlaygroundStore(database),
    sessions: createSessionStore(database),
    signInThrottles: createSignInThrottleStore(database),
    usage: createUsageStore(database),
  };
}
