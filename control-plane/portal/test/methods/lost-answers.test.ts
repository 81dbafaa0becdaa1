import { loseAnswers } from '@matting/core/test/losing-answers.ts';
import ava from 'ava';
import { PORTAL_SUITE } from './portal-suite.ts';

loseAnswers(ava, PORTAL_SUITE);
