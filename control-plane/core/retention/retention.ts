/**
 * How long a final job's row and its idempotency key stay; the contract remembers keys for 30 days.
 */
export const JOB_RETENTION_DAYS_MIN = 30;
export const JOB_RETENTION_DAYS_MAX = 3650;
