export const ROLES = ['owner', 'member', 'viewer'] as const;
export type Role = (typeof ROLES)[number];

export type Permission =
  | 'overview.read'
  | 'keys.read'
  | 'keys.manage'
  | 'credits.read'
  | 'orders.manage'
  | 'usage.read'
  | 'jobs.read'
  /** Results and previews are pictures of the account's customers. */
  | 'results.read'
  | 'jobs.resend'
  | 'jobs.correct'
  | 'jobs.cancel'
  | 'playground.use'
  | 'people.manage'
  | 'settings.manage'
  | 'audit.read'
  | 'self';

const VIEWER: readonly Permission[] = [
  'overview.read',
  'keys.read',
  'credits.read',
  'usage.read',
  'jobs.read',
  'self',
];

const MEMBER: readonly Permission[] = [
  ...VIEWER,
  'results.read',
  'jobs.resend',
  'jobs.correct',
  'playground.use',
  'keys.manage',
];

const OWNER: readonly Permission[] = [
  ...MEMBER,
  'jobs.cancel',
  'orders.manage',
  'people.manage',
  'settings.manage',
  'audit.read',
];

const PERMISSIONS: Readonly<Record<Role, ReadonlySet<Permission>>> = {
  owner: new Set(OWNER),
  member: new Set(MEMBER),
  viewer: new Set(VIEWER),
};

export function may(role: Role, permission: Permission): boolean {
  return PERMISSIONS[role].has(permission);
}

export function isRole(text: string): text is Role {
  return (ROLES as readonly string[]).includes(text);
}
