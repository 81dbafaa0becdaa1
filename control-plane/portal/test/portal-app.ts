import assert from 'node:assert/strict';
import type { Package } from '@matting/core/package.ts';
import { type TestApp, testApps } from '@matting/core/test/support/test-app.ts';
import { openPortal } from '../open-portal.ts';
import { portal } from '../portal.ts';
import { createPortalStores } from '../portal-stores.ts';
import type { PortalSettings } from '../settings.ts';
import { describedPage } from './described-page.ts';
import type { Stores } from './fixtures.ts';

/** The service's own costs take a tenth of a second of a core each. */
const CHEAP_PASSWORDS = { memory: 8, passes: 1 };

export const testPortal: Package<PortalSettings> = {
  ...portal,
  open: (core, settings) => openPortal(core, settings, CHEAP_PASSWORDS),
};

export type PortalApp = TestApp<Stores>;

export const { openTestApp, useTestApp } = testApps<Stores>(
  [describedPage, testPortal],
  (stores, database) => ({
    ...stores,
    ...createPortalStores(database),
  }),
);

export function portalOf(app: Pick<TestApp, 'plugged'>) {
  const opened = app.plugged.find(parts => 'accountArea' in parts);
  assert.ok(opened, 'the portal is not plugged in');
  return opened as Awaited<ReturnType<typeof openPortal>>;
}

export function areaOf(app: Pick<TestApp, 'plugged'>) {
  const { accountArea } = portalOf(app);
  assert.ok(accountArea, 'the account area is off');
  return accountArea.services;
}
