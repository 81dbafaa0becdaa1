/**
 * Loses answers of every changing method of the portal's stores, and of every end of a job with its
 * steps.
 */
import { loseAnswers } from '@matting/core/test/losing-answers.ts';
import ava from 'ava';
import { PORTAL_SUITE } from './portal-suite.ts';

loseAnswers(ava, PORTAL_SUITE);
