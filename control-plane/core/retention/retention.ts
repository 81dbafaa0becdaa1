/**
 * How long a final job's row is kept, and with it its idempotency key and its notification. The
 * contract remembers a key for 30 days, so an operator may keep rows longer and never shorter.
 */
export const JOB_RETENTION_DAYS_MIN = 30;
export const JOB_RETENTION_DAYS_MAX = 3650;
export const JOB_RETENTION_DAYS_DEFAULT = JOB_RETENTION_DAYS_MIN;
